package roles

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/symbol"
)

// FlagDisabled, in Asked.Flags, is of a probe that is switched off.
const FlagDisabled = 1 << 0

// Asked has the caller's wishes. The pointers are to fields of the caller's, which tell it how things are.
type Asked struct {
	Name   string
	Offset uint64
	Addr   *arch.Addr
	Loc    *symbol.Loc // a place that was found; in no file where none was
	Flags  *uint32

	Patient, Optional bool

	Program *Program
	Cookie  uint64

	Handlers Handlers // nil: there are none
	Posts    bool     // one of them runs after the instruction

	// Otherwise puts the caller's handlers in place of its programs, and answers what is wrong with them;
	// nil: there are no others.
	Otherwise func(why error) error
}

// Handlers are a probe's that run in the controller.
type Handlers interface {
	Before(*View) (moved bool) // the instruction: moved tells that the thread is to go on elsewhere
	After(*View)               // it
	Faulted(v *View, trap int) (dealt bool)
}

// found tells whether a place was given that had been found.
func (a *Asked) found() bool { return a.Loc.Module != nil }

// Lasts tells whether the place means something in another program, too.
func (a *Asked) Lasts() bool { return a.Name != "" || a.found() }

// Where is the place in the words that it was given in.
func (a *Asked) Where() string {
	switch {
	case a.Name != "":
		return a.Name
	case a.found():
		return a.Loc.Place()
	}
	return a.Addr.String()
}

// Named puts the probe's own words before an error.
func (a *Asked) Named(err error) error {
	what := a.Where()
	if a.Offset != 0 {
		what += fmt.Sprintf("+%d", a.Offset)
	}
	var e *errno.Error
	if errors.As(err, &e) && !strings.Contains(e.Error(), what) {
		return &errno.Error{Errno: e.Errno, Reason: what, Err: e}
	}
	return err
}

// Check checks what the caller filled in.
func (a *Asked) Check() error {
	if *a.Addr != 0 && a.Lasts() || *a.Addr == 0 && !a.Lasts() {
		return errno.New(syscall.EINVAL, "give either a symbol or an address")
	}
	*a.Flags &= FlagDisabled
	return nil
}
