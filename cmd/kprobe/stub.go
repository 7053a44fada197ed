package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"kprobe"
	"kprobe/target/gdbremote"
)

// stub is the address of the GDB stub of a program; "" says that none is meant.
type stub string

// stubFlag lets the verb have a program behind a stub.
func (r *request) stubFlag(c *cobra.Command) {
	c.Flags().StringVar((*string)(&r.stub), "stub", "", "the program behind the GDB stub at `ADDRESS`: gdbserver's or qemu-MACHINE's, unix:SOCKET or tcp:HOST:PORT")
}

// dial connects to the stub. A machine's is refused: its kernel is what -k is for.
func (a stub) dial() (*gdbremote.Target, error) {
	g, err := gdbremote.Dial(string(a), nil)
	if err != nil {
		return nil, err
	}
	if g.IsMachine() {
		return nil, errors.Join(fmt.Errorf("stub %s: it is a machine's: -k %s probes its kernel", a, a), g.Close())
	}
	return g, nil
}

// attachStub opens a session on a program behind a stub.
func (t *tracing) attachStub(a stub, o *kprobe.Options) error {
	g, err := a.dial()
	if err != nil {
		return err
	}
	o.Unlisted = true // its process id may be another host's
	s, err := t.placing.open(g, o)
	if err != nil {
		return errors.Join(fmt.Errorf("stub %s: %w", a, err), ignoreClosed(g.Close()))
	}
	t.sessions = append(t.sessions, s)
	return nil
}

// look opens a session that only reads.
func (a stub) look() (*kprobe.Session, error) {
	g, err := a.dial()
	if err != nil {
		return nil, err
	}
	s, err := kprobe.Look(g, nil)
	if err != nil {
		g.Close()
	}
	return s, err
}
