package main

import (
	"net/http"

	"github.com/kubeflow/mpi-operator/cmd/mpi-operator/app/options"
	mpijobs "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	mpischeme "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned/scheme"
	mpiinformers "github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	"github.com/kubeflow/mpi-operator/pkg/controller"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
)

// The controller of MPIJobs, without the election of a leader: its own main program answers probes on a port that is
// fixed, so that no two labs could run it.
func mpiOperator(probe string) {
	access := ctrl.GetConfigOrDie()
	access.QPS, access.Burst = 50, 100
	kube, mpi := kubernetes.NewForConfigOrDie(access), mpijobs.NewForConfigOrDie(access)
	utilruntime.Must(mpischeme.AddToScheme(clientgoscheme.Scheme))
	ctx := ctrl.SetupSignalHandler()
	core, own := informers.NewSharedInformerFactory(kube, 0), mpiinformers.NewSharedInformerFactory(mpi, 0)
	jobs, err := controller.NewMPIJobController(
		ctx, kube, mpi, nil, nil,
		core.Core().V1().ConfigMaps(), core.Core().V1().Secrets(), core.Core().V1().Services(), core.Batch().V1().Jobs(),
		core.Core().V1().Pods(), core.Scheduling().V1().PriorityClasses(), own.Kubeflow().V2beta1().MPIJobs(),
		&options.ServerOption{ControllerRateLimit: 10, ControllerBurst: 100},
	)
	utilruntime.Must(err)
	core.Start(ctx.Done())
	own.Start(ctx.Done())
	go func() {
		utilruntime.Must(http.ListenAndServe(probe, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	}()
	utilruntime.Must(jobs.Run(2, ctx.Done()))
}
