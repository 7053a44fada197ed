package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kprobe/arch"
	"kprobe/target"
)

// Some things only the kernel itself can do well: to switch one of its trace events on it takes
// mutexes, changes static keys and calls, and waits for its CPUs, and how differs from version to
// version. So we have it do that: a task that begins a system call, or a piece of work of its own,
// and so may sleep and holds no lock, calls a function of the kernel's first.
//
//	the task           call  __x64_sys_read ─┐ we stop it here, once, and change
//	                                          │ its instruction pointer, its stack and three registers
//	the function       trace_set_clr_event ◄─┘
//	                           │ returns
//	code in the window         └► keeps the result, puts the registers back ─► __x64_sys_read
//
// The task needs us no more from where it was stopped: should we be killed then, it finds its way
// by itself.
type asks struct {
	one  sync.Mutex // held for the whole of one
	want atomic.Pointer[ask]
	made atomic.Bool // there was one: a task may be in the window's code
}

// ask is one such call.
type ask struct {
	fn     arch.Addr
	args   [3]uint64
	placed []arch.Addr   // breakpoints that wait for a task; the owner's
	taken  chan struct{} // closed when a task is on its way
	over   atomic.Bool   // its caller does not wait for it any more
}

// The page of the window that it takes, at its end, before the journal.
const (
	askSize   = 4096
	askDone   = 512 // a word: 1 when it is done
	askResult = 520
	askTexts  = 1024
	askEvents = 2048 // the trace events that are on for us, for a later controller: SYSTEM\0NAME\0 each
)

// stopAsk is a stop of a task that can be asked.
const stopAsk target.StopKind = 255

// askable are functions that tasks begin often, in which they may sleep: system calls, and for a
// machine that makes none, functions that its own threads call each second.
var askable = []string{
	"__x64_sys_read", "__x64_sys_write", "__x64_sys_openat", "__x64_sys_close", "__x64_sys_poll", "__x64_sys_ppoll", "__x64_sys_select", "__x64_sys_pselect6",
	"__x64_sys_epoll_wait", "__x64_sys_futex", "__x64_sys_nanosleep", "__x64_sys_clock_nanosleep", "__x64_sys_wait4", "__x64_sys_rt_sigaction", "__x64_sys_newfstatat",
	"__x64_sys_brk", "__x64_sys_mmap", "vmstat_update", "vmstat_shepherd", "wb_workfn",
}

// SetEvent switches one of the kernel's trace events on or off, as a write to its file in
// /sys/kernel/tracing does. The machine runs. It may be called by any goroutine, but for a handler.
// Errors: the context's; ENOTSUP, no code of ours can be in this kernel.
func (t *Target) SetEvent(ctx context.Context, system, name string, on bool) error {
	t.asks.one.Lock()
	defer t.asks.one.Unlock()
	err := t.windowless()
	switch {
	case err != nil:
	case t.window.at.Start == 0:
		err = errNoWindow
	default:
		err = t.setEvent(ctx, system, name, on)
	}
	if err != nil {
		return fmt.Errorf("trace event %s:%s: %w", system, name, err)
	}
	return nil
}

func (t *Target) setEvent(ctx context.Context, system, name string, on bool) error {
	set := uint64(0)
	if on {
		set = 1
		if err := t.noteEvent(system, name); err != nil {
			return err
		}
	}
	result, err := t.ask(ctx, "trace_set_clr_event", set, system, name)
	if err == nil && int32(result) != 0 {
		err = fmt.Errorf("the kernel's own trace_set_clr_event answers %d", int32(result))
	}
	if !on && err == nil || on && err != nil && ctx.Err() == nil {
		t.forgetEvent(system, name)
	}
	return err
}

// notedEvents are the events that are on, by the window's note.
func (t *Target) notedEvents() (all [][2]string) {
	parts := strings.Split(string(t.window.bytes(t.askPage())[askEvents:]), "\x00")
	for ; len(parts) > 1 && parts[0] != ""; parts = parts[2:] {
		all = append(all, [2]string{parts[0], parts[1]})
	}
	return all
}

// noteEvent writes down that one is on, before it is. Errors: ENOSPC.
func (t *Target) noteEvent(system, name string) error {
	mem := t.window.bytes(t.askPage())[askEvents:]
	at := 0
	for _, e := range t.notedEvents() {
		at += len(e[0]) + len(e[1]) + 2
	}
	text := system + "\x00" + name + "\x00"
	if at+len(text) >= len(mem) {
		return fmt.Errorf("too many trace events at a time: %w", syscall.ENOSPC)
	}
	copy(mem[at+1:], text[1:]) // whole, and then there
	mem[at] = text[0]
	return nil
}

// forgetEvent takes that back.
func (t *Target) forgetEvent(system, name string) {
	mem := t.window.bytes(t.askPage())[askEvents:]
	left := make([]byte, 0, len(mem))
	for _, e := range t.notedEvents() {
		if e != [2]string{system, name} {
			left = append(left, e[0]+"\x00"+e[1]+"\x00"...)
		}
	}
	copy(mem, left[:cap(left)])
}

// switchOffLeft has the kernel switch events off that a killed controller has left on. The machine
// stands, before and after. An event that it does not switch off in time stays: a record more, now
// and then, in the kernel's own trace.
func (t *Target) switchOffLeft() {
	all := t.notedEvents()
	if len(all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, e := range all {
			if t.setEvent(ctx, e[0], e[1], false) != nil {
				return
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
			continue
		default:
		}
		alarm := time.AfterFunc(time.Millisecond, func() { t.Wake() })
		st, err := t.Wait()
		alarm.Stop()
		if err == nil && st.Kind != target.StopWoken {
			err = t.Resume(st.Thread, 0)
		}
		if err != nil {
			cancel()
			<-done
			return
		}
	}
	if _, err := t.Target.Freeze(); err == nil {
		t.Target.Thaw()
	}
}

// ask has a function called with two texts and a number.
func (t *Target) ask(ctx context.Context, function string, n uint64, texts ...string) (result uint64, err error) {
	fn, ok := t.kernel.Table().Addr(function)
	if !ok {
		return 0, fmt.Errorf("the kernel has no %s", function)
	}
	page := t.askPage()
	mem := t.window.bytes(page)
	clear(mem[askDone:askEvents])
	a := &ask{fn: fn, args: [3]uint64{2: n}, taken: make(chan struct{})}
	at := askTexts
	for i, text := range texts {
		a.args[i] = uint64(page.Start) + uint64(at)
		at += copy(mem[at:askEvents-1], text) + 1
	}
	t.asks.made.Store(true)
	t.asks.want.Store(a)
	t.Wake()
	select {
	case <-a.taken:
	case <-ctx.Done():
		a.over.Store(true)
		t.Wake()
		return 0, errors.Join(errors.New("no task of the kernel began anything"), ctx.Err())
	}
	for binary.LittleEndian.Uint64(mem[askDone:]) == 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return 0, errors.Join(errors.New("the kernel has not done it yet"), ctx.Err())
		}
	}
	return binary.LittleEndian.Uint64(mem[askResult:]), nil
}

// askPage is the page of asks in the kernel.
func (t *Target) askPage() arch.Range { return askPageOf(t.window.at.End) }

// askPageOf is the page of asks in a window that ends there.
func askPageOf(end arch.Addr) arch.Range {
	return arch.Range{Start: end - journalSize - askSize, End: end - journalSize}
}

// askCode is the part of it that tasks run. They only point at the bytes behind it, and stacks are
// full of old pointers.
func askCode(page arch.Range) arch.Range {
	return arch.Range{Start: page.Start, End: page.Start + askDone}
}

// lookForAsks puts the breakpoints of an ask in, and takes those out whose caller does not wait any
// more. The owner's.
func (t *Target) lookForAsks() error {
	a := t.asks.want.Load()
	switch {
	case a == nil:
		return nil
	case a.over.Load():
		return t.endAsk(a)
	case a.placed != nil:
		return nil
	}
	for _, name := range askable {
		addr, ok := t.kernel.Table().Addr(name)
		if !ok {
			continue
		}
		if _, other := t.notices.kinds[addr]; other {
			continue
		}
		if err := t.notice(name, stopAsk); err != nil {
			return err
		}
		a.placed = append(a.placed, addr)
	}
	if a.placed == nil {
		a.placed = []arch.Addr{}
	}
	return nil
}

// endAsk takes its breakpoints out.
func (t *Target) endAsk(a *ask) error {
	t.asks.want.CompareAndSwap(a, nil)
	var errs []error
	for _, addr := range a.placed {
		errs = append(errs, t.unnotice(addr))
	}
	a.placed = nil
	return errors.Join(errs...)
}

// asked deals with a task at such a breakpoint: the first makes the call, all others go on. A probe
// of the engine's at the same place is reported as ever.
func (t *Target) asked(st target.Stop) (target.Stop, bool, error) {
	th := st.Thread
	at := t.notices.held[th]
	theirs := t.notices.theirs[at]
	a := t.asks.want.Load()
	if a != nil && !a.over.Load() && !theirs {
		delete(t.notices.held, th)
		if err := t.divert(th, at, a); err != nil {
			return st, false, err
		}
		close(a.taken)
		if err := t.endAsk(a); err != nil {
			return st, false, err
		}
		return st, true, t.Target.Resume(th, 0)
	}
	if theirs {
		delete(t.notices.held, th)
		st.Kind = target.StopTrap
		return st, false, nil
	}
	return st, true, t.Resume(th, 0)
}

// divert sends a task to the function, and writes the code that it comes back by.
func (t *Target) divert(th target.Thread, at arch.Addr, a *ask) error {
	var r arch.Regs
	if err := t.Regs(th, &r); err != nil {
		return err
	}
	page := t.askPage()
	// By the stub, not by our mapping: QEMU must know that its translations of the page are void.
	if err := t.Target.WriteAt(page.Start, t.wayBack(page, at, &r)); err != nil {
		return err
	}
	// At a function's entry the stack is 8 bytes off a multiple of 16, and so it shall be at the
	// other's.
	sp := r[arch.SP] - 16
	if err := t.Target.WriteAt(arch.Addr(sp), binary.LittleEndian.AppendUint64(nil, uint64(page.Start))); err != nil {
		return err
	}
	r[arch.SP], r[t.Arch().PC] = sp, uint64(a.fn)
	r[arch.DI], r[arch.SI], r[arch.DX] = a.args[0], a.args[1], a.args[2]
	return t.SetRegs(th, &r)
}

// wayBack is code that keeps the result, puts all registers back that a call may change, says that
// it is done, and goes on where the task was.
func (t *Target) wayBack(page arch.Range, at arch.Addr, r *arch.Regs) (code []byte) {
	imm := func(op string, v uint64) {
		code = binary.LittleEndian.AppendUint64(append(code, op...), v)
	}
	imm("\x48\xa3", uint64(page.Start)+askResult) // mov %rax, ...
	imm("\x48\xb8", 1)                            // mov $1, %rax
	imm("\x48\xa3", uint64(page.Start)+askDone)
	for _, reg := range []struct {
		op string
		r  arch.Reg
	}{
		{"\x48\xb8", arch.AX}, {"\x48\xb9", arch.CX}, {"\x48\xba", arch.DX}, {"\x48\xbe", arch.SI}, {"\x48\xbf", arch.DI},
		{"\x49\xb8", arch.R8}, {"\x49\xb9", arch.R9}, {"\x49\xba", arch.R10}, {"\x49\xbb", arch.R11},
	} {
		imm(reg.op, r[reg.r])
	}
	// Its address is not left below the stack, where it would look like a way back to it.
	code = append(code, "\x48\xc7\x44\x24\xf8\x00\x00\x00\x00"...) // movq $0, -8(%rsp)
	code = append(code, "\x48\x8d\x64\x24\x08\xe9"...)             // lea 8(%rsp), %rsp; jmp
	next := page.Start + arch.Addr(len(code)) + 4
	return binary.LittleEndian.AppendUint32(code, uint32(at-next))
}
