package event_test

import (
	"errors"
	"fmt"
	"time"

	"kprobe/arch"
	"kprobe/event"
	"kprobe/spec"
)

// buffer is memory that starts at 0x1000.
type buffer [4096]byte

func (b *buffer) ReadAt(addr arch.Addr, p []byte) error {
	if addr < 0x1000 || addr+arch.Addr(len(p)) > 0x2000 {
		return errors.New("not mapped")
	}
	copy(p, b[addr-0x1000:])
	return nil
}

// A definition becomes a capture once; every hit becomes values, an event, a
// line.
func Example() {
	def, err := spec.Parse(`p:open do_sys_openat2 dfd=%di:s32 file=+0($arg2):string how=+0(%dx):x64 max=%cx:u64 two=+0($arg2):char[2]`, spec.Kprobes)
	if err != nil {
		fmt.Println(err)
		return
	}
	capture, err := event.Compile(def.Args, arch.AMD64, nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	var mem buffer
	copy(mem[0x10:], "/etc/hosts\x00")
	regs := arch.Regs{arch.DI: 0xffffff9c, arch.SI: 0x1010, arch.DX: 0 /* NULL */, arch.CX: 1<<64 - 1}
	e := event.Event{
		Time: 3747170 * time.Microsecond, CPU: 1, PID: 144, TID: 145, Comm: "head",
		Group: "kprobes", Name: def.Event,
		Addr: 0xffffffff8134a350, Func: "do_sys_openat2", Size: 0x170,
		Args: capture.Run(&event.Context{Regs: &regs, Mem: &mem}),
	}
	fmt.Printf("%s\n%s\n", e.AppendText(nil), e.AppendJSON(nil))

	e.Return, e.RetAddr, e.RetSym, e.Args = true, 0xffffffff8134d95b, "ksys_read+0x6b/0xf0", nil
	fmt.Printf("%s\n", e.AppendJSON(nil))
	// Output:
	// head-145     [001] .....     3.747170: open: (do_sys_openat2+0x0/0x170) dfd=-100 file="/etc/hosts" how=(fault) max=18446744073709551615 two={'/','e'}
	// {"time_ns":3747170000,"cpu":1,"pid":144,"tid":145,"comm":"head","group":"kprobes","event":"open","kind":"p","addr":"0xffffffff8134a350","func":"do_sys_openat2","off":0,"size":368,"args":{"dfd":-100,"file":"/etc/hosts","how":null,"max":18446744073709551615,"two":["/","e"]}}
	// {"time_ns":3747170000,"cpu":1,"pid":144,"tid":145,"comm":"head","group":"kprobes","event":"open","kind":"r","addr":"0xffffffff8134a350","func":"do_sys_openat2","off":0,"size":368,"ret_addr":"0xffffffff8134d95b","ret":"ksys_read+0x6b/0xf0","args":{}}
}
