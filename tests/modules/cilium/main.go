// Cilium's own verdicts on network policies: those of Kubernetes, its own, and its clusterwide ones, taken together.
//
// Reads one JSON question per line, and answers each with one line. Nothing of Cilium's prints what its policy engine
// says; what runs here is the engine of the agent, without the agent, its datapath and its proxy.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sort"

	cmtypes "github.com/cilium/cilium/pkg/clustermesh/types"
	"github.com/cilium/cilium/pkg/fqdn/re"
	"github.com/cilium/cilium/pkg/identity"
	"github.com/cilium/cilium/pkg/k8s"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/api/core/v1"
	networkingv1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/api/networking/v1"
	metav1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	k8sutils "github.com/cilium/cilium/pkg/k8s/utils"
	"github.com/cilium/cilium/pkg/labels"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/cilium/pkg/policy"
	"github.com/cilium/cilium/pkg/policy/api"
	"github.com/cilium/cilium/pkg/spanstat"
	"github.com/cilium/cilium/pkg/u8proto"
)

const (
	cluster = "default"
	// Policies without a cluster's name mean every one (`policy-default-local-cluster` is off).
	anyCluster = cmtypes.PolicyAnyCluster
)

// Peer is an end of a connection: a pod, an address outside the cluster, a host name outside, or an entity.
type Peer struct {
	Namespace       string
	NamespaceLabels map[string]string
	Labels          map[string]string
	Account         string
	Address         string
	Host            string
	Entity          string
}

// Flow is one connection: names of peers, a port and a transport.
type Flow struct {
	From, To, Protocol string
	Port               uint16
}

// Question is everything that one answer depends on.
type Question struct {
	Objects []json.RawMessage
	Peers   map[string]Peer
	Flows   []Flow
}

// Answer has one verdict for each flow: allowed, proxied (allowed, through the DNS proxy), and otherwise which end says
// no, and whether a rule denies it or no rule allows it.
type Answer struct {
	Errors   []string `json:"errors"`
	Verdicts []string `json:"verdicts"`
}

type silent struct{}

func (silent) AddRule(api.Rule) {}
func (silent) DelRule(api.Rule) {}

func (silent) RegisterFQDNSelector(api.FQDNSelector)   {}
func (silent) UnregisterFQDNSelector(api.FQDNSelector) {}

var logger = slog.New(slog.DiscardHandler)

func main() {
	policy.SetPolicyEnabled(option.DefaultEnforcement)
	option.Config.EnableIPv4, option.Config.EnableIPv6 = true, true
	option.Config.EnableL7Proxy = true
	option.Config.EnableNonDefaultDenyPolicies = true
	option.Config.AllowLocalhost = option.AllowLocalhostAlways // as in Kubernetes
	if err := re.InitRegexCompileLRU(logger, 1024); err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<28)
	for lines.Scan() {
		answer, err := json.Marshal(judge(lines.Bytes()))
		if err != nil {
			panic(err)
		}
		fmt.Println(string(answer))
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}

func judge(content []byte) (answer Answer) {
	answer = Answer{Errors: []string{}, Verdicts: []string{}}
	defer func() {
		if said := recover(); said != nil { // how the repository answers a rule that it does not take
			answer.Errors = append(answer.Errors, fmt.Sprint(said))
		}
	}()
	var question Question
	if err := json.Unmarshal(content, &question); err != nil {
		answer.Errors = append(answer.Errors, err.Error())
		return
	}
	var rules api.Rules
	for _, raw := range question.Objects {
		parsed, err := parse(raw)
		if err != nil {
			answer.Errors = append(answer.Errors, err.Error())
			continue
		}
		rules = append(rules, parsed...)
	}
	peers, err := identities(question.Peers, rules)
	if err != nil {
		answer.Errors = append(answer.Errors, err.Error())
		return
	}
	known := identity.IdentityMap{}
	for _, peer := range peers {
		known[peer.ID] = peer.LabelArray
	}
	repository := policy.NewPolicyRepository(logger, known, nil, nil, nil, silent{})
	repository.GetSelectorCache().SetLocalIdentityNotifier(silent{})
	repository.MustAddList(rules)

	ends := map[string]end{}
	for _, flow := range question.Flows {
		verdict := "allowed"
		for _, name := range []string{flow.From, flow.To} {
			if peers[name] == nil {
				answer.Errors = append(answer.Errors, fmt.Sprintf("no peer %q", name))
				return
			}
			if _, there := ends[name]; !there {
				made, err := resolve(repository, peers[name])
				if err != nil {
					answer.Errors = append(answer.Errors, err.Error())
					return
				}
				ends[name] = made
			}
		}
		protocol, err := u8proto.ParseProtocol(flow.Protocol)
		if err != nil {
			answer.Errors = append(answer.Errors, err.Error())
			return
		}
		out := policy.EgressKey().WithIdentity(peers[flow.To].ID).WithPortProto(protocol, flow.Port)
		in := policy.IngressKey().WithIdentity(peers[flow.From].ID).WithPortProto(protocol, flow.Port)
		if said := ends[flow.From].say(out); said == "allowed" || said == "proxied" {
			verdict = said
			if there := ends[flow.To].say(in); there != "allowed" {
				verdict = "ingress " + there
			}
		} else {
			verdict = "egress " + said
		}
		answer.Verdicts = append(answer.Verdicts, verdict)
	}
	return
}

func parse(raw []byte) (api.Rules, error) {
	var kind struct{ Kind string }
	if err := json.Unmarshal(raw, &kind); err != nil {
		return nil, err
	}
	switch kind.Kind {
	case "NetworkPolicy":
		var object networkingv1.NetworkPolicy
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, err
		}
		return k8s.ParseNetworkPolicy(logger, anyCluster, &object)
	case "CiliumNetworkPolicy":
		var object ciliumv2.CiliumNetworkPolicy
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, err
		}
		return object.Parse(logger, anyCluster)
	case "CiliumClusterwideNetworkPolicy":
		var object ciliumv2.CiliumClusterwideNetworkPolicy
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, err
		}
		return object.Parse(logger, anyCluster)
	}
	return nil, fmt.Errorf("no policy: %s", kind.Kind)
}

// As the agent gives identities: a pod's by its labels and its namespace's, an address' by the address, and a host
// name's address by every selector of a rule that the name matches.
func identities(given map[string]Peer, rules api.Rules) (map[string]*identity.Identity, error) {
	var names []string
	for name := range given {
		names = append(names, name)
	}
	sort.Strings(names)
	found, local := map[string]*identity.Identity{}, identity.IdentityScopeLocal+1
	for number, name := range names {
		peer := given[name]
		switch {
		case peer.Entity != "":
			reserved := identity.GetReservedID(peer.Entity)
			if reserved == identity.IdentityUnknown {
				return nil, fmt.Errorf("no entity %q", peer.Entity)
			}
			own := labels.Labels{peer.Entity: labels.NewLabel(peer.Entity, "", labels.LabelSourceReserved)}
			if reserved == identity.ReservedIdentityKubeAPIServer {
				// Outside the cluster, as on EKS.
				own.AddWorldLabel(netip.IPv4Unspecified())
			}
			found[name] = identity.NewIdentity(reserved, own)
		case peer.Namespace == "":
			var own labels.Labels
			if peer.Address != "" {
				address, err := netip.ParseAddr(peer.Address)
				if err != nil {
					return nil, err
				}
				own = labels.GetCIDRLabels(netip.PrefixFrom(address, address.BitLen()))
			} else {
				own = labels.Labels{}
				own.AddWorldLabel(netip.IPv4Unspecified())
				for _, rule := range rules {
					for _, egress := range rule.Egress {
						for _, selector := range egress.ToFQDNs {
							pattern, err := selector.ToRegex()
							if err != nil {
								return nil, err
							}
							if pattern.MatchString(peer.Host + ".") {
								label := selector.IdentityLabel()
								own[label.String()] = label
							}
						}
					}
				}
			}
			found[name] = identity.NewIdentity(local, own)
			local++
		default:
			namespace := &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: peer.Namespace, Labels: peer.NamespaceLabels},
			}
			own := k8sutils.SanitizePodLabels(peer.Labels, namespace, peer.Account, cluster)
			id := identity.NumericIdentity(1000 + number)
			found[name] = identity.NewIdentity(id, labels.Map2Labels(own, labels.LabelSourceK8s))
		}
	}
	return found, nil
}

// end is what one peer's own policies say.
type end struct{ policy *policy.EndpointPolicy }

func resolve(repository *policy.Repository, peer *identity.Identity) (end, error) {
	selected, _, err := repository.GetSelectorPolicy(peer, 0, &stats{}, uint64(peer.ID))
	if err != nil {
		return end{}, err
	}
	owner := &policy.EndpointInfo{ID: uint64(peer.ID), Logger: logger}
	redirects := map[string]uint16{}
	for _, protocol := range []string{"TCP", "UDP", "ANY"} {
		redirects[policy.ProxyID(uint16(peer.ID), false, protocol, 53, "")] = 10001
	}
	return end{selected.DistillPolicy(logger, owner, redirects)}, nil
}

func (e end) say(key policy.Key) string {
	entry, _, found := e.policy.Lookup(key)
	switch {
	case found && entry.IsDeny():
		return "denied"
	case !found || entry.IsDeny():
		return "not allowed"
	case entry.IsRedirectEntry():
		return "proxied"
	}
	return "allowed"
}

type stats struct{ waiting, calculating spanstat.SpanStat }

func (s *stats) WaitingForPolicyRepository() *spanstat.SpanStat { return &s.waiting }
func (s *stats) SelectorPolicyCalculation() *spanstat.SpanStat  { return &s.calculating }
