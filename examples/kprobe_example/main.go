// Kprobe_example shows every hit of a function: kprobes.txt's sample module of
// the same name, for a process.
//
//	kprobe_example [-func NAME] -p PID
//	kprobe_example [-func NAME] [-- PROGRAM [ARGUMENT ...]]
//
// It ends with the process, or when it is interrupted.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"kprobe"
	"kprobe/target/ptrace"
)

// handlerPre is called just before the probed instruction is executed.
func handlerPre(p *kprobe.Kprobe, regs *kprobe.Regs) int {
	log.Printf("pre_handler: p->addr = %v, ip = %v, flags = 0x%x", p.Addr, regs.PC(), regs.Flags())
	return 0
}

// handlerPost is called after the probed instruction is executed.
func handlerPost(p *kprobe.Kprobe, regs *kprobe.Regs, flags uint64) {
	log.Printf("post_handler: p->addr = %v, flags = 0x%x", p.Addr, regs.Flags())
}

// handlerFault is called if the probed instruction or a handler faults.
func handlerFault(p *kprobe.Kprobe, regs *kprobe.Regs, trapnr int) int {
	log.Printf("fault_handler: p->addr = %v, trap #%d", p.Addr, trapnr)
	return 0 // not handled: the process is told
}

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal("kprobe_example: ", err)
	}
}

func run() error {
	name := flag.String("func", "write", "the function to probe")
	pid := flag.Int("p", 0, "the process, if none is to be started")
	flag.Parse()
	interrupt := make(chan os.Signal, 1)
	signal.Notify(interrupt, os.Interrupt)
	s, err := open(*pid, flag.Args())
	if err != nil {
		return err
	}
	defer s.Close()

	kp := &kprobe.Kprobe{SymbolName: *name, PreHandler: handlerPre, PostHandler: handlerPost, FaultHandler: handlerFault}
	if err := s.RegisterKprobe(kp); err != nil {
		return fmt.Errorf("register_kprobe failed: %w", err)
	}
	at := kp.Addr
	log.Printf("Planted kprobe at %v", at)
	s.Continue()

	hint := time.After(10 * time.Second)
	for waiting := true; waiting; {
		select {
		case <-hint:
			if kp.Hits() == 0 {
				log.Printf("No hit yet. In another terminal, have process %d call %s; or try -func with another function", s.Target().PID(), *name)
			}
			continue
		case <-interrupt:
		case <-s.Done():
		}
		waiting = false
	}
	if err := s.UnregisterKprobe(kp); err != nil {
		return err
	}
	log.Printf("kprobe at %v unregistered", at)
	return nil
}

// open begins a session on a running process, or on a program that waits to be
// told to Continue.
func open(pid int, argv []string) (*kprobe.Session, error) {
	if pid == 0 {
		if len(argv) == 0 { // one that calls write every second
			argv = []string{"/bin/sh", "-c", "while echo hello; do sleep 1; done"}
		}
		p, err := ptrace.Start(argv, nil)
		if err != nil {
			return nil, err
		}
		return kprobe.Open(p, nil)
	}
	p, err := ptrace.Attach(pid)
	if err != nil {
		return nil, err
	}
	return kprobe.Open(p, nil)
}
