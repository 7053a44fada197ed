package bind

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/isa/amd64"
	"kprobe/source"
	"kprobe/spec"
	"kprobe/symbol"
)

// LLVM leaves out a result, or a part of it, that no caller of a function uses, if it knows them all. It may not say so. Then the
// registers are anything. On x86-64, the callers' code tells whether there is a result: one of them uses it.

var errUnused = errors.New("no caller is seen to use it, and LLVM may have left it out")

// kept returns errUnused for a result that the compiler may have left out. It is not found out for floating-point numbers.
func (s *Site) kept(v value) error {
	if !s.Arch.Debug.Eightbytes || s.code == nil || s.global || s.Unoptimized || !s.Data.Silent(s.At) {
		return nil
	}
	want, known := s.registersOf(v)
	if !known || want != 0 && s.used(want) != want {
		return errUnused
	}
	return nil
}

// registersOf are the general registers that a result is in; not known: it is in others, too.
func (s *Site) registersOf(v value) (set arch.RegSet, known bool) {
	add := func(f *spec.Fetch) bool {
		switch f.Op {
		case spec.Retval:
			set |= arch.SetOf(s.Arch.Ret)
		case spec.Reg:
			r, _ := s.Arch.RegByName(f.Name)
			set |= arch.SetOf(r)
		}
		return f.Op == spec.Vector
	}
	if v.addr.Any(add) || v.val.Any(add) {
		return 0, false
	}
	for _, p := range v.pieces {
		switch e := p.Value; {
		case e == nil:
		case e.Op != source.OpReg || s.vector(e.N):
			return 0, false
		default:
			f, err := s.lower(e)
			if err != nil {
				return 0, false
			}
			add(f)
		}
	}
	return set, true
}

// most bound what is looked at for one function.
const (
	mostCallers  = 1000
	mostBehind   = 16 // instructions behind a call
	longestInsns = mostBehind * 15
)

// used are those of some registers that a caller of the function in the file reads behind a call, before it writes them.
func (s *Site) used(want arch.RegSet) (found arch.RegSet) {
	type key struct{}
	all := s.code.Memo(key{}, func() any { return callsIn(s.code) }).([]call)
	entry := s.entry
	i, _ := slices.BinarySearchFunc(all, entry, func(c call, to uint64) int { return cmp.Compare(c.to, to) })
	for n := 0; i < len(all) && all[i].to == entry && n < mostCallers && found != want; i, n = i+1, n+1 {
		if b, err := s.code.Bytes(all[i].ret, longestInsns); err == nil {
			found |= reads(b, want)
		}
	}
	return found
}

// reads are those of some registers that code reads before it writes them. An instruction that does both, or stores what it
// has no use for, does not count.
func reads(code []byte, want arch.RegSet) (found arch.RegSet) {
	const push = 0x50 // and so on for eight registers: compilers move the stack pointer so
	for range mostBehind {
		i, err := amd64.Decode(code, 64)
		if err != nil {
			break
		}
		u := i.Uses(code)
		if !u.Exact || i.Flow != isa.Next && i.Flow != isa.CondJump || i.Map == amd64.MapOneByte && i.Opcode&^7 == push {
			break
		}
		found |= want & u.Reads &^ u.Writes
		if want &^= u.Reads | u.Writes; want == 0 {
			break
		}
		code = code[i.Len:]
	}
	return found
}

// call is one, by the address that it is to and that to which it returns.
type call struct{ to, ret uint64 }

// callsIn are the calls in a file that name an address in it, by that. Some may be none: of other bytes that look so.
func callsIn(f *symbol.File) (all []call) {
	const opcode, size = 0xe8, 5
	ranges := f.Text()
	for _, r := range ranges {
		b, err := f.Bytes(r.Start, r.End-r.Start)
		if err != nil {
			continue
		}
		for at := 0; ; at++ {
			i := bytes.IndexByte(b[at:], opcode)
			if i < 0 || at+i+size > len(b) {
				break
			}
			at += i
			ret := r.Start + uint64(at) + size
			to := ret + uint64(int64(int32(binary.LittleEndian.Uint32(b[at+1:]))))
			if slices.ContainsFunc(ranges, func(r symbol.Range) bool { return r.Contains(to) }) {
				all = append(all, call{to, ret})
			}
		}
	}
	slices.SortFunc(all, func(a, b call) int { return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.ret, b.ret)) })
	return all
}
