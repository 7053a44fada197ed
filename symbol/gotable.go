package symbol

import (
	"slices"
	"sort"
)

// Of the header of Go's table of functions and of a function's entry, since Go 1.18: offsets in words, then in bytes.
const (
	pclnNFunc    = 0 // words behind the first 8 bytes
	pclnPCTab    = 6
	pclnFuncs    = 7
	goFuncPCSP   = 16 // a number of 4 bytes: offset into the table of pairs
	goFuncPCFile = 20 // the same: of the source files
	goFuncFlag   = 41 // a byte
	goFlagTop    = 1  // no caller
	goFlagSP     = 2  // it changes stacks
	goFlagAsm    = 4  // it is written in assembler
	pclnMagic120 = 0xfffffff1
	pclnMagic118 = 0xfffffff0
)

// goTable is the table by which Go's runtime knows the functions of a program, by address.
type goTable struct {
	f               *File
	data            []byte
	text            uint64 // what addresses count from
	n, pctab, funcs uint64
}

// goFunction is an entry of the table.
type goFunction struct {
	start, end   uint64
	pcsp, pcfile uint32 // 0 for none
	flags        byte
}

// readGoTable is nil where there is none, or one of before Go 1.18.
func (f *File) readGoTable() *goTable {
	if !f.IsGo() {
		return nil
	}
	data, addr := f.pclntabBytes()
	if len(data) < 8 || !slices.Contains([]uint32{pclnMagic120, pclnMagic118}, f.elf.ByteOrder.Uint32(data)) {
		return nil
	}
	word := func(i int) uint64 {
		if at := 8 + f.ptr*i; at+f.ptr <= len(data) {
			return f.word(data[at:])
		}
		return 0
	}
	t := &goTable{f: f, data: data, text: f.goTextStart(addr), n: word(pclnNFunc), pctab: word(pclnPCTab), funcs: word(pclnFuncs)}
	t.n = min(t.n, uint64(len(data)/8)) // each takes at least eight bytes of the table
	return t
}

func (t *goTable) u32(at uint64) (uint32, bool) {
	if at > uint64(len(t.data)) || uint64(len(t.data))-at < 4 {
		return 0, false
	}
	return t.f.elf.ByteOrder.Uint32(t.data[at:]), true
}

// start finds where a function begins, or, for the number behind the last one, where that ends.
func (t *goTable) start(i uint64) uint64 {
	entry, ok := t.u32(t.funcs + 8*i)
	if !ok {
		return 0
	}
	return t.text + uint64(entry)
}

// function is an entry; false for one that is wrong.
func (t *goTable) function(i uint64) (fn goFunction, ok bool) {
	at, ok1 := t.u32(t.funcs + 8*i + 4)
	fn.start, fn.end = t.start(i), t.start(i+1)
	pcsp, ok2 := t.u32(t.funcs + uint64(at) + goFuncPCSP)
	pcfile, ok3 := t.u32(t.funcs + uint64(at) + goFuncPCFile)
	flags := t.funcs + uint64(at) + goFuncFlag
	_, in := t.f.textAt(fn.start)
	if !ok1 || !ok2 || !ok3 || !in || fn.end <= fn.start || flags >= uint64(len(t.data)) {
		return fn, false
	}
	fn.pcsp, fn.pcfile, fn.flags = pcsp, pcfile, t.data[flags]
	return fn, true
}

// GoCode tells whether the code at an address of the file is a Go function's. A Go program has other code, too, where it
// calls C (cgo). The toolchain's own linker lists C's functions with Go's, but knows no source of theirs. Of before Go 1.18 all
// code counts as Go's.
func (f *File) GoCode(vaddr uint64) bool {
	if f.goTable() == nil {
		return f.IsGo()
	}
	fn, ok := f.goFunction(vaddr)
	return ok && fn.pcfile != 0
}

// inAssembler tells whether a Go function is written in assembler: then it may have its arguments on the stack (ABI0).
func (f *File) inAssembler(vaddr uint64) bool {
	fn, ok := f.goFunction(vaddr)
	return ok && fn.flags&goFlagAsm != 0
}

// goFunction finds the entry of the function that has an address.
func (f *File) goFunction(vaddr uint64) (fn goFunction, ok bool) {
	t := f.goTable()
	if t == nil {
		return fn, false
	}
	i := uint64(sort.Search(int(t.n), func(i int) bool { return t.start(uint64(i)) > vaddr }))
	if i == 0 {
		return fn, false
	}
	fn, ok = t.function(i - 1)
	return fn, ok && vaddr < fn.end
}
