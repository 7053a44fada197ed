package torture

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"kprobe"
	"kprobe/arch"
	"kprobe/target/ptrace"
)

// tortureOrder is what a controller that is going to be killed does: everything
// that a controller can do, over and over, and it says what it does next.
type tortureOrder struct {
	Follow  bool // children, which get the same probes
	PID     int
	Entries []arch.Addr // a third of them with post-handlers, and another inside the target
	Returns []arch.Addr
	Busy    []arch.Addr // have a program that takes a while, in the session that ends with Death
	Seed    uint64
	Hold    bool // the probes stay in place
	Death   death
	Hits    int  // to wait for, in the session that ends with Death
	Recover bool // what ends with Death is a recovery
}

// armedFor is how long the probes stay in place undisturbed.
const armedFor = 40 * time.Millisecond

// The phases, in the order in which a controller says them.
var phases = []string{"attach", "open", "arm", "armed", "churn", "disarm", "close", "closed"}

const orderVariable = "KPROBE_TEST_TORTURE" // names the file with the order

// playTortured is the controller's main.
func playTortured(order string) error {
	var o tortureOrder
	b, err := os.ReadFile(order)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	switch {
	case o.Recover:
		return o.recover()
	case o.Death.Call > 0:
		return o.once()
	}
	rnd := rand.New(rand.NewPCG(o.Seed, 1))
	for {
		if err := o.session(rnd); err != nil {
			return err
		}
	}
}

func (o *tortureOrder) session(rnd *rand.Rand) error {
	say := func(phase string) { os.Stdout.WriteString(phase + "\n") }
	say("attach")
	p, err := ptrace.Attach(o.PID)
	if err != nil {
		return err
	}
	say("open")
	s, err := kprobe.Open(p, &kprobe.Options{Report: func(err error) { fmt.Println("reported:", err) }})
	if err != nil {
		return err
	}
	entries, returns := o.probes()
	say("arm")
	if err := armAll(s, entries, returns); err != nil {
		return err
	}
	say("armed")
	if o.Hold {
		select {}
	}
	time.Sleep(armedFor)
	for range 5 { // at 100 Hz
		say("churn")
		next := time.Now().Add(10 * time.Millisecond)
		es, rs := some(rnd, entries), some(rnd, returns)
		if err := disarmAll(s, es, rs); err != nil {
			return err
		}
		if err := armAll(s, es, rs); err != nil {
			return err
		}
		time.Sleep(time.Until(next))
	}
	say("disarm")
	if err := disarmAll(s, entries, returns); err != nil {
		return err
	}
	say("close")
	if err := s.Close(); err != nil {
		return err
	}
	say("closed")
	return nil
}

func (o *tortureOrder) probes() (entries []*kprobe.Kprobe, returns []*kprobe.Kretprobe) {
	for i, addr := range o.Entries {
		kp := &kprobe.Kprobe{Addr: addr, PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }}
		switch i % 3 {
		case 0:
			kp.PostHandler = func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}
		case 1:
			kp.PreHandler, kp.Program = nil, kprobe.CountOnly // jumps, most of them
		}
		entries = append(entries, kp)
	}
	for _, addr := range o.Returns {
		returns = append(returns, &kprobe.Kretprobe{
			Kp:        kprobe.Kprobe{Addr: addr},
			Handler:   func(*kprobe.KretprobeInstance, *kprobe.Regs) int { return 0 },
			MaxActive: 1000,
		})
	}
	return entries, returns
}

func armAll(s *kprobe.Session, entries []*kprobe.Kprobe, returns []*kprobe.Kretprobe) error {
	if len(entries) > 0 {
		if err := s.RegisterKprobes(entries); err != nil {
			return fmt.Errorf("register: %w", err)
		}
	}
	if len(returns) > 0 {
		if err := s.RegisterKretprobes(returns); err != nil {
			return fmt.Errorf("register returns: %w", err)
		}
	}
	return nil
}

func disarmAll(s *kprobe.Session, entries []*kprobe.Kprobe, returns []*kprobe.Kretprobe) error {
	if len(entries) > 0 {
		if err := s.UnregisterKprobes(entries); err != nil {
			return fmt.Errorf("unregister: %w", err)
		}
	}
	if len(returns) > 0 {
		if err := s.UnregisterKretprobes(returns); err != nil {
			return fmt.Errorf("unregister returns: %w", err)
		}
	}
	return nil
}

// some picks about half of a list.
func some[T any](rnd *rand.Rand, all []T) []T {
	var half []T
	for _, p := range all {
		if rnd.IntN(2) == 0 {
			half = append(half, p)
		}
	}
	return half
}
