// Cyclonus' verdicts on NetworkPolicies, by Kubernetes' own semantics.
//
// Reads one JSON question per line, and answers each with one line. `cyclonus analyze` prints tables for people; this
// is the same engine, asked for plain answers.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/mattfenwick/cyclonus/pkg/matcher"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Peer is an end of a connection: a pod with its address, or an address outside the cluster.
type Peer struct {
	Namespace       string
	NamespaceLabels map[string]string
	Labels          map[string]string
	Address         string
}

// Flow is one connection: names of peers, a port and a transport.
type Flow struct {
	From, To, Protocol string
	Port               int
}

// Question is everything that one answer depends on.
type Question struct {
	Objects []*networkingv1.NetworkPolicy
	Peers   map[string]Peer
	Flows   []Flow
}

// Answer has one verdict for each flow: allowed, or which end does not allow it.
type Answer struct {
	Errors   []string `json:"errors"`
	Verdicts []string `json:"verdicts"`
}

func main() {
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
		if said := recover(); said != nil { // how it answers a policy that it does not take
			answer.Errors = append(answer.Errors, fmt.Sprint(said))
		}
	}()
	var question Question
	if err := json.Unmarshal(content, &question); err != nil {
		answer.Errors = append(answer.Errors, err.Error())
		return answer
	}
	policies := matcher.BuildNetworkPolicies(true, question.Objects)
	peers := map[string]*matcher.TrafficPeer{}
	for name, peer := range question.Peers {
		peers[name] = end(peer)
	}
	for _, flow := range question.Flows {
		if peers[flow.From] == nil || peers[flow.To] == nil {
			answer.Errors = append(answer.Errors, fmt.Sprintf("no peer %q or %q", flow.From, flow.To))
			return answer
		}
		found := policies.IsTrafficAllowed(&matcher.Traffic{
			Source:       peers[flow.From],
			Destination:  peers[flow.To],
			ResolvedPort: flow.Port,
			Protocol:     corev1.Protocol(flow.Protocol),
		})
		verdict := "allowed"
		if !found.Egress.IsAllowed() {
			verdict = "egress not allowed"
		} else if !found.Ingress.IsAllowed() {
			verdict = "ingress not allowed"
		}
		answer.Verdicts = append(answer.Verdicts, verdict)
	}
	return answer
}

func end(peer Peer) *matcher.TrafficPeer {
	if peer.Namespace == "" {
		return &matcher.TrafficPeer{IP: peer.Address}
	}
	return &matcher.TrafficPeer{
		IP: peer.Address,
		Internal: &matcher.InternalPeer{
			PodLabels:       peer.Labels,
			NamespaceLabels: peer.NamespaceLabels,
			Namespace:       peer.Namespace,
		},
	}
}
