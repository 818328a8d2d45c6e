package main

import (
	"context"

	routev1 "github.com/openshift/api/route/v1"
	configapi "github.com/ray-project/kuberay/ray-operator/apis/config/v1alpha1"
	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/batchscheduler"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils"
	"github.com/ray-project/kuberay/ray-operator/controllers/ray/utils/dashboardclient"
	utiltypes "github.com/ray-project/kuberay/ray-operator/controllers/ray/utils/types"
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
	"sigs.k8s.io/controller-runtime/pkg/manager"
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
	mgr, err := ctrl.NewManager(access, ctrl.Options{
		Scheme:                 scheme,
		Cache:                  cache.Options{ByObject: map[client.Object]cache.ByObject{&batchv1.Job{}: {Label: own}}},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: probe,
	})
	utilruntime.Must(err)

	ctx := ctrl.SetupSignalHandler()
	config := playedRay{}
	batch, err := batchscheduler.NewSchedulerManager(ctx, config.Configuration, access, mgr.GetClient())
	utilruntime.Must(err)
	clusters := ray.RayClusterReconcilerOptions{BatchSchedulerManager: batch}
	utilruntime.Must(ray.NewReconciler(ctx, mgr, clusters).SetupWithManager(mgr, 1))
	jobs := ray.RayJobReconcilerOptions{BatchSchedulerManager: batch}
	utilruntime.Must(ray.NewRayJobReconciler(ctx, mgr, jobs, config).SetupWithManager(mgr, 1))
	utilruntime.Must(mgr.AddHealthzCheck("healthz", healthz.Ping))
	utilruntime.Must(mgr.Start(ctx))
}

// What became of the job of a Ray cluster, as a word of Ray's, in an annotation of the cluster.
const outcome = "played.example/ray-job"

// Ray itself, which does not run in pods that are played: the dashboard of a cluster says that the job runs until the
// cluster's annotation names its outcome.
type playedRay struct{ configapi.Configuration }

func (playedRay) GetDashboardClient(
	context.Context, manager.Manager,
) func(*rayv1.RayCluster, string) (dashboardclient.RayDashboardClientInterface, error) {
	return func(cluster *rayv1.RayCluster, _ string) (dashboardclient.RayDashboardClientInterface, error) {
		status := rayv1.JobStatusRunning
		if word := cluster.Annotations[outcome]; word != "" {
			status = rayv1.JobStatus(word)
		}
		return playedDashboard{status: status}, nil
	}
}

type playedDashboard struct {
	dashboardclient.RayDashboardClientInterface
	status rayv1.JobStatus
}

func (dashboard playedDashboard) GetJobInfo(_ context.Context, job string) (*utiltypes.RayJobInfo, error) {
	return &utiltypes.RayJobInfo{JobStatus: dashboard.status, JobId: job, SubmissionId: job}, nil
}

func (playedDashboard) StopJob(context.Context, string) error { return nil }
