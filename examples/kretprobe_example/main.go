// Kretprobe_example reports a function's return values and how long its calls
// took: kprobes.txt's sample module of the same name, for a process.
//
//	kretprobe_example [-func NAME] -p PID
//	kretprobe_example [-func NAME] -- PROGRAM [ARGUMENT ...]
//
// It ends with the process, or when it is interrupted.
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"kprobe"
	"kprobe/target/ptrace"
)

var began = time.Now()

// stampSize is the private data of an instance: the time of entry.
const stampSize = 8

// entryHandler timestamps the function's entry. The kernel's sample skips
// kernel threads; this one skips threads other than the first.
func entryHandler(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
	if ri.Task.TID != ri.Task.PID {
		return 1
	}
	binary.NativeEndian.PutUint64(ri.Data, uint64(time.Since(began)))
	return 0
}

// retHandler logs the return value and the duration, stops of the probe itself
// included.
func retHandler(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
	took := time.Since(began) - time.Duration(binary.NativeEndian.Uint64(ri.Data))
	if ri.Tail {
		log.Printf("%s ended with a jump to another function, %d ns later", ri.Rp.Kp.SymbolName, took.Nanoseconds())
		return 0
	}
	log.Printf("%s returned %d and took %d ns to execute", ri.Rp.Kp.SymbolName, int64(regs.ReturnValue()), took.Nanoseconds())
	return 0
}

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal("kretprobe_example: ", err)
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

	rp := &kprobe.Kretprobe{
		Kp:           kprobe.Kprobe{SymbolName: *name},
		Handler:      retHandler,
		EntryHandler: entryHandler,
		DataSize:     stampSize,
		MaxActive:    20, // calls at once
	}
	if err := s.RegisterKretprobe(rp); err != nil {
		return fmt.Errorf("register_kretprobe failed: %w", err)
	}
	at := rp.Kp.Addr
	log.Printf("Planted return probe at %s: %v", *name, at)
	s.Continue()

	select {
	case <-interrupt:
	case <-s.Done():
	}
	if err := s.UnregisterKretprobe(rp); err != nil {
		return err
	}
	log.Printf("kretprobe at %v unregistered", at)
	// More than 0 suggests that MaxActive is too low.
	log.Printf("Missed probing %d instances of %s", rp.NMissed(), *name)
	return nil
}

// open begins a session on a running process, or on a program that waits to be
// told to Continue.
func open(pid int, argv []string) (*kprobe.Session, error) {
	if pid == 0 {
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
