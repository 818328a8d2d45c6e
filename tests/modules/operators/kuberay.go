package main

import (
	routev1 "github.com/openshift/api/route/v1"
	configapi "github.com/ray-project/kuberay/ray-operator/apis/config/v1alpha1"
	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/batchscheduler"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// KubeRay's controllers of RayClusters and RayJobs, without its webhook: its own main program cannot be built with the
// Kubernetes libraries of Kueue's module, for the webhook alone, and its chart leaves the webhook out too.
func kuberay(probe string) {
	ctrl.SetLogger(zap.New())

	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(rayv1.AddToScheme(scheme))
	utilruntime.Must(routev1.Install(scheme))

	// Of Jobs it sees its own alone.
	own := labels.SelectorFromSet(labels.Set{utils.KubernetesCreatedByLabelKey: utils.ComponentName})
	access := ctrl.GetConfigOrDie()
	access.QPS, access.Burst = float32(configapi.DefaultQPS), configapi.DefaultBurst
	manager, err := ctrl.NewManager(access, ctrl.Options{
		Scheme:                 scheme,
		Cache:                  cache.Options{ByObject: map[client.Object]cache.ByObject{&batchv1.Job{}: {Label: own}}},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: probe,
	})
	utilruntime.Must(err)

	ctx := ctrl.SetupSignalHandler()
	config := configapi.Configuration{}
	batch, err := batchscheduler.NewSchedulerManager(ctx, config, access, manager.GetClient())
	utilruntime.Must(err)
	clusters := ray.RayClusterReconcilerOptions{BatchSchedulerManager: batch}
	utilruntime.Must(ray.NewReconciler(ctx, manager, clusters).SetupWithManager(manager, 1))
	jobs := ray.RayJobReconcilerOptions{BatchSchedulerManager: batch}
	utilruntime.Must(ray.NewRayJobReconciler(ctx, manager, jobs, config).SetupWithManager(manager, 1))
	utilruntime.Must(manager.AddHealthzCheck("healthz", healthz.Ping))
	utilruntime.Must(manager.Start(ctx))
}
