package bind

import (
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

// So much is looked at for one function.
const (
	mostCallers = 1000
	mostBehind  = 16              // instructions behind a call
	behindBytes = mostBehind * 15 // the longest that these can be
)

// used are those of some registers that a caller of the function in the file reads behind a call, before it writes them. Of a
// function that a pointer leads to, they are all: LLVM does not know its callers.
func (s *Site) used(want arch.RegSet) (found arch.RegSet) {
	type key struct{}
	all := s.code.Memo(key{}, func() any { return referencesIn(s.code) }).([]reference)
	i, _ := slices.BinarySearchFunc(all, s.entry, func(r reference, to uint64) int { return cmp.Compare(r.to, to) })
	for n := 0; i < len(all) && all[i].to == s.entry && n < mostCallers && found != want; i, n = i+1, n+1 {
		if all[i].ret == 0 {
			return want
		}
		if b, err := s.code.Bytes(all[i].ret, behindBytes); err == nil {
			found |= reads(b, want)
		}
	}
	return found
}

// reads are those of some registers that code reads before it writes them. An instruction that does both does not count, as it may
// write a part, nor does a push.
func reads(code []byte, want arch.RegSet) (found arch.RegSet) {
	const push = 0x50 // the first of eight; compilers move the stack pointer so
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

// reference is a call of an address, with that to which it returns, or a pointer to it.
type reference struct{ to, ret uint64 }

// referencesIn are the calls in a file that name an address in its code, and the pointers to one: in its data, or made by an
// instruction (lea). They are in the order of the addresses. Some may be none: of other bytes that look so.
func referencesIn(f *symbol.File) (all []reference) {
	for _, to := range f.DataPointers() {
		all = append(all, reference{to: to})
	}
	const chunk, longest = 1 << 20, 6
	for _, r := range f.Text() {
		for at := r.Start; at < r.End; at += chunk {
			if code, err := f.Bytes(at, min(chunk+longest-1, r.End-at)); err == nil {
				all = appendReferences(all, f, code, at, min(chunk, r.End-at))
			}
		}
	}
	slices.SortFunc(all, func(a, b reference) int { return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.ret, b.ret)) })
	return all
}

// appendReferences appends those that begin in the first size bytes of code, which stands at an address.
func appendReferences(all []reference, f *symbol.File, code []byte, at, size uint64) []reference {
	const call, lea = 0xe8, 0x8d
	const modRM, fromPC = 0xc7, 0x05 // an address that counts from the next instruction
	for i, op := range code[:size] {
		rel := i + 1
		switch {
		case op == lea && rel < len(code) && code[rel]&modRM == fromPC:
			rel++
		case op != call:
			continue
		}
		if rel+4 > len(code) {
			continue
		}
		next := at + uint64(rel) + 4
		to := next + uint64(int64(int32(binary.LittleEndian.Uint32(code[rel:]))))
		switch {
		case !f.IsText(to):
		case op == lea:
			all = append(all, reference{to: to})
		default:
			all = append(all, reference{to, next})
		}
	}
	return all
}
