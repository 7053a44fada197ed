// Package linker is what a dynamic linker tells debuggers: it calls an empty function, made for them, before and after each
// change of what is mapped, and r_debug says which of both it is.
package linker

import (
	"kprobe/arch"
	"kprobe/internal/image"
	"kprobe/symbol"
)

// Places are where a program's linker is to be watched, and where it keeps r_debug.r_state (0 where that is not known): its
// function, and with entry the program's first instruction too, where all that was mapped is relocated. There are none in static programs.
func Places(im *image.Image, entry bool) (locs []symbol.Loc, state arch.Addr) {
	program := im.Program()
	if program == nil || program.File == nil || program.File.Interp() == "" {
		return nil, 0
	}
	interp := program.File.Interp()
	locs, err := im.Space.Resolve(symbol.Query{Module: interp, Symbol: "_dl_debug_state", Kind: symbol.Func})
	if err != nil {
		return nil, 0
	}
	if entry {
		if loc, ok := im.Space.At(program.InProcess(program.File.Entry())); ok {
			loc.Off = 0 // whatever function it is in, execution begins here
			locs = append(locs, loc)
		}
	}
	if data, err := im.Space.Resolve(symbol.Query{Module: interp, Symbol: "_r_debug", Kind: symbol.Data}); err == nil {
		state = data[0].Addr + 3*arch.Addr(im.Arch.PtrSize)
	}
	return locs, state
}

// Consistent tells whether it has finished a change (RT_CONSISTENT), by its state, wherever that can be read.
func Consistent(a *arch.Arch, state arch.Addr, read func(arch.Addr, []byte) error) bool {
	b := make([]byte, 4)
	return state == 0 || read(state, b) != nil || a.Order.Uint32(b) == 0
}
