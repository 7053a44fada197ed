package lifeline

import (
	"bytes"
	"fmt"

	"kprobe/arch"
)

// Machine lets processes of a machine outlive a killed controller: it has the handler, and the jumps
// that make traps superfluous. Processes of a machine without one cannot be probed. Each is in the
// file of its name.
type Machine struct {
	*arch.Arch

	mark      uint64 // Dealt, where the machine has need of it
	handler   []byte // testdata/MACHINE_trap.S, assembled
	bypassLen int    // of what bypass answers

	bypass       func(from, to arch.Addr) (jump []byte, ok bool)
	bypassReturn func(to uint64) []byte
	isJump       func(code []byte) bool                                  // nil: none is put over instructions
	jumpsTo      func(at arch.Addr, code []byte) (to arch.Addr, ok bool) // of what isJump tells
}

// Missing says what a machine without a Machine lacks.
func Missing(a *arch.Arch) error { return fmt.Errorf("no trap handler for %s", a.Name) }

// Mark is Dealt where a machine has it, else 0, as for none.
func (m *Machine) Mark() uint64 {
	if m == nil {
		return 0
	}
	return m.mark
}

// IsJump tells whether code begins with a jump as they are put over instructions: on x86
// jmp rel32, with prefixes that mean nothing, and perhaps without its last bytes,
// which were there already.
func (m *Machine) IsJump(code []byte) bool { return m.isJump != nil && m.isJump(code) }

// JumpsTo is the address that a jump leads to, if one stands over a program's instructions at an
// address.
func (m *Machine) JumpsTo(at arch.Addr, code []byte) (to arch.Addr, ok bool) {
	if !m.IsJump(code) {
		return 0, false
	}
	return m.jumpsTo(at, code)
}

// BypassLen is the length of what Bypass answers.
func (m *Machine) BypassLen() int { return m.bypassLen }

// Bypass makes the trap at the end of a slot superfluous: bytes for its address,
// a jump to where the handler would have sent the thread. A slot has room for it,
// since one without post-handlers has the same instruction and such a jump. ok is
// false for the trap of a probe, and for one from which no jump reaches.
func (e Entry) Bypass(m *Machine) (jump []byte, ok bool) {
	if !bytes.HasPrefix(e.Original[:e.Len], m.Break) {
		return nil, false
	}
	return m.bypass(e.Addr, e.Slot)
}

// BypassReturn makes the trap of the return trampoline superfluous: bytes for its
// address, a jump to code in the Trap at base that finds the real return address.
func (m *Machine) BypassReturn(base arch.Addr) []byte {
	return m.bypassReturn(uint64(base + offCode + returnerAt))
}
