package owner_test

import (
	"errors"
	"slices"
	"testing"

	"kprobe/internal/owner"
	"kprobe/target"
)

// thread is a target whose owner thread is the test's goroutine, or another one.
type thread struct {
	target.Target
	own    bool
	stops  []target.Stop
	log    []string
	resume []target.Thread
}

func (t *thread) OnOwner() bool { return t.own }
func (t *thread) Wake()         {}
func (t *thread) Run(f func())  { f() }
func (t *thread) Stuck() int    { return 0 }

func (t *thread) Freeze() ([]target.Stop, error) {
	t.log = append(t.log, "freeze")
	stops := t.stops
	t.stops = nil
	return stops, nil
}

func (t *thread) Thaw() error {
	t.log = append(t.log, "thaw")
	return nil
}

func (t *thread) Resume(th target.Thread, signal int) error {
	t.resume = append(t.resume, th)
	return nil
}

type child struct{ target.Child }

// What stops while the target is made to stand still waits, but for a child: it is dealt with before
// the change. What can wait is done when the target runs again.
func TestFreeze(t *testing.T) {
	p := &thread{own: true, stops: []target.Stop{{Kind: target.StopTrap, Thread: 1}, {Kind: target.StopFork, Thread: 2, Child: child{}}}}
	o := owner.New(p, false, func(st target.Stop) { p.log = append(p.log, st.Kind.String()) })
	err := o.Frozen(func() error {
		o.After(func() { p.log = append(p.log, "after") })
		p.log = append(p.log, "change")
		return nil
	})
	if want := []string{"freeze", "fork", "change", "thaw", "after"}; err != nil || !slices.Equal(p.log, want) {
		t.Errorf("%q, %v, want %q", p.log, err, want)
	}
	o.Wake(0)
	if st, ok := o.Next(); !ok || st.Kind != target.StopWoken || len(p.resume) != 1 || p.resume[0] != 1 {
		t.Errorf("%v, %v, resumed %v", st, ok, p.resume)
	}
	if st, ok := o.Next(); ok {
		t.Errorf("the child was dealt with, and waits: %v", st)
	}
}

// Nothing is changed in a program that nobody has looked at yet.
func TestExecuted(t *testing.T) {
	p := &thread{own: true, stops: []target.Stop{{Kind: target.StopExec, Thread: 1}}}
	o := owner.New(p, false, nil)
	never := func() error { t.Error("the other program was changed"); return nil }
	if err := o.Frozen(never); !errors.Is(err, owner.ErrExecuted) {
		t.Error(err)
	}
	o.Next()
	o.Executed = true
	if err := o.Frozen(never); !errors.Is(err, owner.ErrExecuted) {
		t.Error(err)
	}
	if err := o.Meanwhile(never); !errors.Is(err, owner.ErrExecuted) {
		t.Error(err)
	}
	if want := []string{"freeze", "thaw", "freeze", "thaw"}; !slices.Equal(p.log, want) {
		t.Errorf("%q, want %q", p.log, want)
	}
}

// What a target reports while it stands still for the first time is for its owner thread, if there will be one.
func TestStanding(t *testing.T) {
	trap, end := target.Stop{Kind: target.StopTrap, Thread: 1}, target.Stop{Kind: target.StopExit}
	refused := errors.New("refused")
	for _, tt := range []struct {
		name    string
		stops   []target.Stop
		err     error
		want    error
		waits   int
		resumed int
	}{
		{"served", []target.Stop{trap}, nil, nil, 1, 0},
		{"refused", []target.Stop{trap}, refused, refused, 0, 1},
		{"ended", []target.Stop{end}, nil, target.ErrGone, 1, 0},
	} {
		p := &thread{own: true, stops: tt.stops}
		var o *owner.Owner
		err := owner.Standing(p, func() (*owner.Owner, error) {
			if tt.err == nil {
				o = owner.New(p, false, nil)
			}
			return o, tt.err
		})
		if !errors.Is(err, tt.want) || o != nil && len(o.Stops) != tt.waits || len(p.resume) != tt.resumed || !slices.Equal(p.log, []string{"freeze", "thaw"}) {
			t.Errorf("%s: %v, resumed %v, %q", tt.name, err, p.resume, p.log)
		}
	}
}

// Others wait for the owner thread, and no longer than there is one.
func TestDo(t *testing.T) {
	p := new(thread)
	o := owner.New(p, true, nil)
	asked := make(chan bool)
	go func() { asked <- o.Do(func() {}) }()
	for done := false; !done; {
		o.Work()
		select {
		case ok := <-asked:
			if done = true; !ok {
				t.Error("the owner thread has ended")
			}
		default:
		}
	}

	var in, out bool
	o.Aside(func() func() { in = o.InHandler(); return func() {} })
	out = o.InHandler()
	grace := make(chan bool)
	go func() { o.Grace(); close(grace) }()
	for done := false; !done; {
		o.Work()
		select {
		case <-grace:
			done = true
		default:
		}
	}
	if !in || out {
		t.Errorf("in a handler: %v, elsewhere: %v", in, out)
	}

	o.End()
	o.Grace()
	o.Served()
	if o.Do(func() { t.Error("nobody is there to do it") }) {
		t.Error("the owner thread has not ended")
	}
	if err := o.Frozen(func() error { return nil }); !errors.Is(err, owner.ErrClosed) {
		t.Error(err)
	}
}
