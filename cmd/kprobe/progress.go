package main

import (
	"fmt"
	"os"
	"time"

	"kprobe/internal/host"
)

// progress tells on a terminal what is waited for, if that takes over a second. The result ends it, and takes its line
// away again.
func progress(what string) (done func()) {
	if !host.Terminal(os.Stderr.Fd()) {
		return func() {}
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		began := time.Now()
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for told := false; ; told = true {
			select {
			case <-tick.C:
				fmt.Fprintf(os.Stderr, "\rkprobe: %s ... %ds", what, int(time.Since(began).Seconds()))
			case <-stop:
				if told {
					fmt.Fprint(os.Stderr, "\r\x1b[K")
				}
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
	}
}
