package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/internal/asm/x86"
)

// A kernel's way with trap instructions in itself (x86, since 5.8): asm_exc_int3 makes the
// registers a struct pt_regs on the stack and calls exc_int3 with its address. That first asks
// whether the trap belongs to the kernel's own rewriting of text (poke_int3_handler), and then all
// others. The code behind the call restores the registers from the struct.
const (
	trapEntry   = "asm_exc_int3"
	trapHandler = "exc_int3"
)

// TrapHandler is the address that a trap in the kernel comes to.
func (t *Target) TrapHandler() (arch.Addr, error) {
	if err := t.windowless(); err != nil {
		return 0, err
	}
	entry, handler := t.function(trapEntry), t.function(trapHandler)
	if entry.End == 0 || handler.End == 0 {
		return 0, fmt.Errorf("the kernel has no %s and %s", trapEntry, trapHandler)
	}
	if _, err := t.entryText(); err != nil {
		return 0, err
	}
	if types, err := t.kernel.Types(); err != nil {
		return 0, err
	} else if off, _, err := types.Offset("pt_regs", "ip"); err != nil || off != 128 {
		return 0, errors.New("the kernel's struct pt_regs is not as it was always")
	}
	code := make([]byte, entry.Size())
	if err := t.ReadAt(entry.Start, code); err != nil {
		return 0, err
	}
	const size = x86.CallLen
	for i := 0; i+size <= len(code); i++ {
		to := entry.Start + arch.Addr(i+size) + arch.Addr(int64(int32(binary.LittleEndian.Uint32(code[i+1:]))))
		if code[i] == x86.ByteCall && to == handler.Start {
			return handler.Start, nil
		}
	}
	return 0, fmt.Errorf("%s does not call %s", trapEntry, trapHandler)
}

// function is the range of a function's code; zeros where there is none, or several.
func (t *Target) function(name string) arch.Range {
	all := t.kernel.Lookup(name)
	if len(all) != 1 || all[0].Size == 0 {
		return arch.Range{}
	}
	return arch.Range{Start: all[0].Addr, End: all[0].Addr + arch.Addr(all[0].Size)}
}

// entryText is the code by which CPUs come into the kernel and leave it.
func (t *Target) entryText() (arch.Range, error) {
	start, ok1 := t.kernel.Table().Addr("__entry_text_start")
	end, ok2 := t.kernel.Table().Addr("__entry_text_end")
	if !ok1 || !ok2 || start >= end {
		return arch.Range{}, errors.New("the kernel does not say where its entry code is")
	}
	return arch.Range{Start: start, End: end}, nil
}

// Passing tells whether a CPU may be on the way from a trap to its handler, or from there back. All
// of that is with interrupts masked, so it is over soon, and no sleeping task is there; an NMI,
// which comes nevertheless, has a stack of its own. A return there may be made by a function (a
// thunk), which has nothing on the stack but its return address, and perhaps a word above.
func (t *Target) Passing() bool {
	entry, err := t.entryText()
	handler := t.function(trapHandler)
	if err != nil || handler.End == 0 {
		return true
	}
	for _, th := range t.Threads() {
		var r arch.Regs
		if t.Regs(th, &r) != nil {
			return true
		}
		at := []arch.Addr{r.Addr(t.Arch().PC)}
		if at[0] < kernelHalf {
			continue
		}
		for i := range arch.Addr(2) {
			at = append(at, t.pointer(r.Addr(t.Arch().SP)+i*arch.Addr(t.Arch().PtrSize)))
		}
		if slices.ContainsFunc(at, func(a arch.Addr) bool { return entry.Contains(a) || handler.Contains(a) }) {
			return true
		}
	}
	_, err = t.Resting(func(arch.Addr) bool { return false }) // a CPU on another stack is an error
	return err != nil
}
