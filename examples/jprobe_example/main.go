// Jprobe_example dumps the arguments of write(2): kprobes.txt's sample module
// of the same name, for a process.
//
//	jprobe_example [-func NAME] -p PID
//	jprobe_example [-func NAME] -- PROGRAM [ARGUMENT ...]
//
// Another function must have the same parameters. It ends with the process,
// or when it is interrupted.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	"kprobe"
	"kprobe/target/ptrace"
)

// jwrite has the parameters of the real write. Its return is what
// jprobe_return is to a kernel's jprobe.
func jwrite(fd int32, buf kprobe.CString, count uint64) {
	start, err := buf.Read(int(min(count, 16)))
	if err != nil {
		start = "(fault)"
	}
	log.Printf("jprobe: fd = %d, buf = %v %q, count = %d", fd, buf.Addr, start, count)
}

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal("jprobe_example: ", err)
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

	jp := &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: *name}, Entry: jwrite}
	if err := s.RegisterJprobe(jp); err != nil {
		return fmt.Errorf("register_jprobe failed: %w", err)
	}
	at := jp.Kp.Addr
	log.Printf("Planted jprobe at %v", at)
	s.Continue()

	select {
	case <-interrupt:
	case <-s.Done():
	}
	if err := s.UnregisterJprobe(jp); err != nil {
		return err
	}
	log.Printf("jprobe at %v unregistered", at)
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
