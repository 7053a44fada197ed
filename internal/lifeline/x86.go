package lifeline

import (
	"bytes"
	"encoding/binary"

	"kprobe/arch"
	"kprobe/internal/asm/x86"
)

// AMD64 is x86-64.
var AMD64 = &Machine{
	Arch: arch.AMD64, mark: Dealt, handler: amd64Handler, bypassLen: x86.JmpLen,
	bypass:       bypassX86,
	bypassReturn: func(to uint64) []byte { return x86.AppendJmpFar(nil, arch.Addr(to)) },
	isJump:       isJumpX86,
	jumpsTo:      jumpsToX86,
}

// I386 is x86-64's predecessor.
var I386 = &Machine{
	Arch: arch.I386, mark: Dealt, handler: i386Handler, bypassLen: x86.JmpLen,
	bypass: bypassX86,
	// over the return address that was popped just now
	bypassReturn: func(to uint64) []byte { return append(x86.AppendPushImm(nil, uint32(to)), x86.ByteRet) },
	isJump:       isJumpX86,
	jumpsTo: func(at arch.Addr, code []byte) (arch.Addr, bool) {
		to, ok := jumpsToX86(at, code)
		return to & (1<<32 - 1), ok
	},
}

func bypassX86(from, to arch.Addr) ([]byte, bool) {
	rel, _ := x86.Rel(from+x86.JmpLen, to) // slots are within reach
	return x86.AppendJmp(nil, rel), true
}

func isJumpX86(code []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(code, string(rune(x86.PrefixCS))), []byte{x86.ByteJmp})
}

func jumpsToX86(at arch.Addr, code []byte) (arch.Addr, bool) {
	prefixes := bytes.IndexByte(code, x86.ByteJmp)
	end := prefixes + x86.JmpLen
	if end > len(code) {
		return 0, false
	}
	return at + arch.Addr(end) + arch.Addr(int64(int32(binary.LittleEndian.Uint32(code[prefixes+1:])))), true
}
