// Argo CD's application controller, its repository server and a Redis for their cache as one program: of Argo CD itself
// these need nothing else to sync an Application.
//
// The first argument says which of them runs; the others are its own.
package main

import (
	"fmt"
	"os"

	"github.com/alicebob/miniredis/v2"
	"github.com/spf13/cobra"

	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	reposerver "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
)

func main() {
	commands := map[string]func() *cobra.Command{
		"controller":  controller.NewCommand,
		"repo-server": reposerver.NewCommand,
		"redis":       redis,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "name one of: controller, repo-server, redis")
		os.Exit(2)
	}
	command := commands[os.Args[1]]()
	command.SetArgs(os.Args[2:])
	if command.Execute() != nil {
		os.Exit(1)
	}
}

func redis() *cobra.Command {
	return &cobra.Command{
		Use:  "redis ADDRESS",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			if err := miniredis.NewMiniRedis().StartAddr(arguments[0]); err != nil {
				return err
			}
			select {}
		},
	}
}
