package lifeline

import (
	"bytes"

	"kprobe/arch"
)

// Disarm plans how the traps that a dead controller has left are taken away while the program runs
// on. Each is a byte, or an instruction where all have one length: the only kind of change of
// running code for which no thread needs to be stopped. A probe's trap becomes the instruction's
// first byte again. The trap at the end of a slot, and the return trampoline's, become the first
// byte of the jump that lies hidden behind them.
//
// A place that is not complete, as where the controller died while it wrote, stays as it is: the
// handler knows what to do with every trap. So do jumps, which do no harm.
func (f *Found) Disarm(m *Machine, base arch.Addr, read func(arch.Addr, []byte) error) (ws []Write) {
	traps := f.Traps()
	// becomes plans that code stands at an address, where all but its first byte is there.
	trap := len(m.Break)
	becomes := func(at arch.Addr, code []byte) {
		have := make([]byte, len(code))
		if len(code) < trap || read(at, have) != nil || !bytes.HasPrefix(have, m.Break) || bytes.HasPrefix(code, m.Break) {
			return
		}
		for i := trap; i < len(code); i++ {
			another := have[i] == m.Break[0] && traps[at+arch.Addr(i)]
			if have[i] != code[i] && !another {
				return
			}
		}
		ws = append(ws, Write{at, code[:trap]})
	}
	for _, e := range f.Entries {
		if jump, ok := e.Bypass(m); ok {
			becomes(e.Addr, jump)
		} else {
			becomes(e.Addr, bytes.Clone(e.Original[:e.Len]))
		}
	}
	if f.Return != 0 {
		becomes(f.Return, m.BypassReturn(base))
	}
	return ws
}

// Traps are the addresses of all the traps that there may be or have been.
func (f *Found) Traps() map[arch.Addr]bool {
	traps := make(map[arch.Addr]bool, len(f.Entries)+1)
	for _, e := range f.Entries {
		traps[e.Addr] = true
	}
	if f.Return != 0 {
		traps[f.Return] = true
	}
	return traps
}
