// Controllers whose own main programs cannot run beside a lab, by the name of their project: `operators kuberay`.
package main

import (
	"flag"
	"log"
)

func main() {
	probe := flag.String("health-probe-bind-address", "", "Address of the probes.")
	flag.Parse()
	switch name := flag.Arg(0); name {
	case "kuberay":
		kuberay(*probe)
	case "mpi-operator":
		mpiOperator(*probe)
	default:
		log.Fatalf("no controllers of %q", name)
	}
}
