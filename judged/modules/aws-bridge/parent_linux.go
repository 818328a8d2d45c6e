package main

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// The engine kills its plugins, and a killed process ends none of its children: the kernel does it here.
func endWithParent() error {
	runtime.LockOSThread() // the signal belongs to the thread, and the thread becomes the provider
	parent := os.Getppid()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if parent == 1 || os.Getppid() != parent {
		return errors.New("the process that started it has ended")
	}
	return nil
}
