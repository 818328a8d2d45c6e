// Kueue's own judgement of what we write: its configuration, and its objects as its webhooks see them.
//
// Reads one JSON object per line, and answers each with one line: a list of what is wrong.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/config"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	_ "sigs.k8s.io/kueue/pkg/controller/jobs"
	"sigs.k8s.io/kueue/pkg/webhooks"
)

var scheme = runtime.NewScheme()

func init() {
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(kueue.AddToScheme(scheme))
	utilruntime.Must(configapi.AddToScheme(scheme))
	utilruntime.Must(jobframework.ForEachIntegration(func(_ string, callbacks jobframework.IntegrationCallbacks) error {
		if callbacks.AddToScheme != nil {
			return callbacks.AddToScheme(scheme)
		}
		return nil
	}))
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		found := []string{}
		if err := judge(lines.Bytes()); err != nil {
			found = append(found, err.Error())
		}
		answer, err := json.Marshal(found)
		utilruntime.Must(err)
		fmt.Println(string(answer))
	}
	utilruntime.Must(lines.Err())
}

func judge(content []byte) error {
	var kind struct{ Kind string }
	if err := json.Unmarshal(content, &kind); err != nil {
		return err
	}
	if kind.Kind == "Configuration" {
		return configuration(content)
	}
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	object, _, err := codecs.UniversalDeserializer().Decode(content, nil, nil)
	if err != nil {
		return err
	}
	switch given := object.(type) {
	case *kueue.ClusterQueue:
		return webhooks.ValidateClusterQueue(given).ToAggregate()
	case *kueue.ResourceFlavor:
		return webhooks.ValidateResourceFlavor(given).ToAggregate()
	case *kueue.Cohort:
		_, err := (&webhooks.CohortWebhook{}).ValidateCreate(context.Background(), given)
		return err
	}
	return nil // Kueue has no webhook for it: its fields alone are judged
}

// As cmd/kueue does when it starts.
func configuration(content []byte) error {
	file, err := os.CreateTemp("", "configuration")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if _, err := file.Write(content); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	_, read, err := config.Load(scheme, file.Name())
	if err != nil {
		return err
	}
	if err := config.LoadAndValidateFeatureGates("", read.FeatureGates).ToAggregate(); err != nil {
		return err
	}
	return config.Validate(&read, scheme).ToAggregate()
}
