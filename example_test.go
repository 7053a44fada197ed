package kprobe_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"syscall"
	"time"

	"kprobe"
	"kprobe/arch"
	"kprobe/event"
	"kprobe/target/ptrace"
	"kprobe/trace"
)

// A program is started; before it can run, its writes are probed.
func ExampleSession_RegisterKprobe() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		log.Fatal(err)
	}
	p, err := ptrace.Start([]string{"/bin/echo", "hello"}, &os.ProcAttr{Files: []*os.File{null, null, null}})
	if err != nil {
		log.Fatal(err)
	}
	s, err := kprobe.Open(p, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	kp := &kprobe.Kprobe{
		SymbolName: "libc.so.6:write",
		PreHandler: func(p *kprobe.Kprobe, regs *kprobe.Regs) int {
			fd, _ := regs.Arg(0)
			buf, _ := regs.Arg(1)
			count, _ := regs.Arg(2)
			text := make([]byte, count)
			err := regs.ReadMem(arch.Addr(buf), text)
			fmt.Printf("write(%d, %q), %v\n", fd, text, err)
			return 0
		},
	}
	if err := s.RegisterKprobe(kp); err != nil {
		log.Fatal(err)
	}
	s.Continue()
	<-s.Done()
	// Output: write(1, "hello\n"), <nil>
}

// A return probe with private data: how long each call took.
func ExampleSession_RegisterKretprobe() {
	p, err := ptrace.Attach(4711)
	if err != nil {
		log.Fatal(err)
	}
	s, err := kprobe.Open(p, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	start := time.Now()
	rp := &kprobe.Kretprobe{
		Kp:        kprobe.Kprobe{SymbolName: "libc.so.6:fsync"},
		MaxActive: 100,
		DataSize:  8,
		EntryHandler: func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
			binary.NativeEndian.PutUint64(ri.Data, uint64(time.Since(start)))
			return 0
		},
		Handler: func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
			took := time.Since(start) - time.Duration(binary.NativeEndian.Uint64(ri.Data))
			fmt.Printf("thread %d: fsync returned %d after %v\n", ri.Task.TID, int32(regs.ReturnValue()), took)
			return 0
		},
	}
	if err := s.RegisterKretprobe(rp); err != nil {
		log.Fatal(err)
	}
	time.Sleep(10 * time.Second)
	fmt.Println("missed", rp.NMissed())
}

// The handler of a jprobe has the parameters of the probed function, here
// int connect(int fd, const struct sockaddr *addr, socklen_t len).
func ExampleSession_RegisterJprobe() {
	var s *kprobe.Session // from Open
	type sockaddr struct {
		Family uint16
		Data   [14]byte
	}
	jp := &kprobe.Jprobe{
		Kp: kprobe.Kprobe{SymbolName: "libc.so.6:connect"},
		Entry: func(fd int32, addr kprobe.Ptr[sockaddr], length uint32) {
			to, err := addr.Load()
			if err != nil {
				return
			}
			fmt.Printf("connect %d: family %d, % x\n", fd, to.Family, to.Data)
		},
	}
	if err := s.RegisterJprobe(jp); err != nil {
		log.Fatal(err)
	}
}

// A function is skipped, and its caller gets a result of ours: a pre-handler
// that answers other than 0 has moved the PC.
func ExampleKprobe_injection() {
	var s *kprobe.Session // from Open
	full := &kprobe.Kprobe{SymbolName: "libc.so.6:write", PreHandler: func(p *kprobe.Kprobe, regs *kprobe.Regs) int {
		if fd, _ := regs.Arg(0); fd <= 2 {
			return 0
		}
		back, err := regs.Word(regs.SP())
		if err != nil {
			return 0
		}
		regs.SetReturnValue(^uint64(0)) // -1
		regs.Set(arch.SP, uint64(regs.SP())+8)
		regs.SetPC(arch.Addr(back))
		return 1
	}}
	if err := s.RegisterKprobe(full); err != nil {
		log.Fatal(err)
	}
}

// All or none: what is wrong with a batch is said of one of its probes.
func ExampleBatchError() {
	var s *kprobe.Session // from Open
	err := s.RegisterKprobes([]*kprobe.Kprobe{{SymbolName: "malloc"}, {SymbolName: "mallok"}})
	var batch *kprobe.BatchError
	switch {
	case errors.As(err, &batch) && errors.Is(err, syscall.ENOENT):
		fmt.Printf("probe %d: %v\n", batch.Index, batch.Err) // with the nearest names
	case err != nil:
		log.Fatal(err)
	}
}

// Definitions in the language of the kernel's kprobe_events, each hit a line in
// the format of its trace file.
func ExampleTracer() {
	var s *kprobe.Session // from Open
	tr := trace.New(s, func(e *event.Event) { fmt.Printf("%s\n", e.AppendText(nil)) })
	defer tr.Close()
	if err := tr.Add(`p:open libc.so.6:openat path=+0(%si):string`, `r:opened libc.so.6:openat fd=$retval:s32`); err != nil {
		log.Fatal(err)
	}
}
