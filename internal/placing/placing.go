// Package placing turns what the programs of an object say of their places into addresses and
// names: one place, all functions that match a pattern, or the static probes (USDT) of a file,
// whose arguments the program is told of.
package placing

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/errno"
	"kprobe/symbol"
)

// Placement says where a program goes, in place of what its section names: a place as Program.Attach of
// package bpf has it.
type Placement struct{ Program, Place string }

// Of are the places of a program: those that it is told, or that its section names. A file's name that
// leads on from the folder that we are in becomes a whole path: the target's folder is another.
func Of(p *bpf.Program, told []Placement) (all []string) {
	for _, a := range told {
		if a.Program == p.Name {
			all = append(all, whole(a.Place))
		}
	}
	if all == nil && p.Attach != "" {
		all = []string{whole(p.Attach)}
	}
	return all
}

func whole(place string) string {
	file, rest, ok := strings.Cut(place, ":")
	if !ok || filepath.IsAbs(file) || !strings.Contains(file, "/") {
		return place
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return place // nobody is in that folder
	}
	return abs + ":" + rest
}

// Unplaced names the programs that have none, and that no tail call leads to.
func Unplaced(programs []*bpf.Program, told []Placement) (names []string) {
	for _, p := range programs {
		if len(Of(p, told)) == 0 && !p.Called {
			names = append(names, p.Name)
		}
	}
	return names
}

// Spot is where a probe goes, by name or address, and its cookie.
type Spot struct {
	Program *bpf.Program

	Name   string
	Offset uint64
	Addr   arch.Addr
	Cookie uint64
}

// Finder finds the spots of programs that were loaded together.
type Finder struct {
	Space *symbol.Space
	Specs *bpf.Map    // what tells the programs of static probes' arguments; nil where none asks
	Warn  func(error) // of what is not served, but does not stop the rest

	// Semaphores are the places of 2 bytes that tell the target of somebody who is at its
	// static probes. They have been found so far.
	Semaphores []arch.Addr
}

// All finds where programs go: those that have a place. Errors: ENOENT for a program that told
// names and that is not there; EINVAL where none has a place; those of Find, with the program's name.
func (f *Finder) All(programs []*bpf.Program, told []Placement) (all []Spot, err error) {
	for _, at := range told {
		if !slices.ContainsFunc(programs, func(p *bpf.Program) bool { return p.Name == at.Program }) {
			return nil, errno.New(syscall.ENOENT, "no program %q", at.Program)
		}
	}
	for _, p := range programs {
		for _, place := range Of(p, told) {
			spots, err := f.Find(p, place)
			if err != nil {
				return nil, fmt.Errorf("program %q: %w", p.Name, err)
			}
			for _, at := range spots {
				at.Program = p
				all = append(all, at)
			}
		}
	}
	if len(all) == 0 {
		return nil, errno.New(syscall.EINVAL, `no program's section names a place, as SEC("uprobe/libc.so.6:malloc") does: --at PROGRAM=PLACE places one (%s)`, strings.Join(Unplaced(programs, told), ", "))
	}
	return all, nil
}

// inFile is an offset in a file, for what has no symbols.
func (f *Finder) inFile(module string, at uint64) (spots []Spot, err error) {
	for _, loc := range f.Space.AtFileOffset(module, at) {
		spots = append(spots, Spot{Addr: loc.Addr})
	}
	if len(spots) == 0 {
		return nil, errno.New(syscall.ENOENT, "offset %#x of %s is not mapped", at, module)
	}
	return spots, nil
}

// Find finds what a place of a program means. Errors: EINVAL for one that is none, ENOENT for what
// is not there.
func (f *Finder) Find(p *bpf.Program, place string) ([]Spot, error) {
	if p.USDT {
		return f.static(place)
	}
	name, offset, err := symbol.SplitOffset(place)
	if err != nil {
		return nil, &errno.Error{Errno: syscall.EINVAL, Err: err}
	}
	module, function := symbol.SplitName(name)
	if f.isStatic(place) {
		return f.static(place)
	}
	if hex, ok := strings.CutPrefix(function, "0x"); ok && module != "" {
		if at, err := strconv.ParseUint(hex, 16, 63); err == nil {
			return f.inFile(module, at+offset)
		}
	}
	if kind, _, _ := strings.Cut(place, ":"); (kind == "p" || kind == "r") && len(f.Space.ModulesNamed(kind)) == 0 { // as in definitions
		return nil, errno.New(syscall.EINVAL, "%q: a place is [FILE:]FUNCTION; whether the program is at its returns, its section says", place)
	}
	if !p.Glob || !strings.ContainsAny(function, "*?[") {
		return []Spot{{Name: name, Offset: offset}}, nil
	}
	var spots []Spot
	for _, loc := range f.Space.Match(module, function) {
		if loc.Func.Source != symbol.Plt && loc.Func.Kind != symbol.IFunc {
			spots = append(spots, Spot{Addr: loc.Addr + arch.Addr(offset)})
		}
	}
	if len(spots) == 0 {
		return nil, errno.New(syscall.ENOENT, "no function matches %q", place)
	}
	return spots, nil
}
