package script

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kprobe/internal/proc"
	"kprobe/script/debug"
	"kprobe/script/imports"
	"kprobe/script/point"
	"kprobe/script/types"
	"kprobe/symbol"
)

// files are the files that attach points name, as long as a script is compiled: point.Debug. Each is opened once.
type files struct {
	pid  int // of the process whose files they are; 0 for none
	open map[string]*openFile
}

type openFile struct {
	file *os.File
	data *debug.Data
	err  error
}

func newFiles(pid int) *files { return &files{pid, map[string]*openFile{}} }

// close closes all that were opened.
func (f *files) close() {
	for _, o := range f.open {
		if o.file != nil {
			o.file.Close()
		}
	}
}

func (f *files) of(target string) (*debug.Data, error) {
	o := f.open[target]
	if o == nil {
		o = f.read(target)
		f.open[target] = o
	}
	return o.data, o.err
}

func (f *files) read(target string) *openFile {
	file, path, err := f.find(target)
	if err != nil {
		return &openFile{err: err}
	}
	syms, err := symbol.Open(file, &symbol.Options{Path: path, Debug: symbol.DebugFinder("/")})
	if err != nil {
		return &openFile{file: file, err: fmt.Errorf("%s: %w", path, err)}
	}
	return &openFile{file: file, data: debug.Of(syms)}
}

// find opens a target's file: where the process has it, if there is one; a name without a folder may be the program's.
func (f *files) find(target string) (*os.File, string, error) {
	of := proc.Process(f.pid)
	if f.pid != 0 && filepath.IsAbs(target) {
		if file, err := os.Open(of.File("root" + target)); err == nil {
			return file, target, nil
		}
	}
	if exe, err := of.Readlink("exe"); err == nil && !strings.Contains(target, "/") && filepath.Base(exe) == target {
		if file, err := of.Open("exe"); err == nil {
			return file, exe, nil
		}
	}
	path, err := findFile(target)
	if err != nil {
		return nil, "", err
	}
	file, err := os.Open(path)
	return file, path, err
}

// Functions are those of a target's file that a pattern matches, with their parameters.
func (f *files) Functions(target string, name point.Name) ([]point.Function, error) {
	if hasGlob(target) {
		return nil, errors.New("the parameters of a pattern's files are not known: name one file")
	}
	data, err := f.of(target)
	if err != nil {
		return nil, err
	}
	return data.Functions(name), nil
}

// Passings are the functions at a point, without their parameters. Those of a pattern's files are looked at when they are mapped.
func (f *files) Passings(pt *point.Point) []point.Function {
	if hasGlob(pt.Target) {
		return nil
	}
	data, err := f.of(pt.Target)
	if err != nil {
		return nil
	}
	return data.Passings(pt)
}

// Constant is one that an enumeration of a target's file names.
func (f *files) Constant(target, name string) (value uint64, t *types.Type, ok bool) {
	data, err := f.of(target)
	if err != nil {
		return 0, nil, false
	}
	return data.Constant(name)
}

// variable is one of a target's file.
func (f *files) variable(target, name string) (addr, size uint64, err error) {
	data, err := f.of(target)
	if err != nil {
		return 0, 0, err
	}
	return data.Variable(name)
}

// inlined are the inlined copies of a function of a target's file.
func (f *files) inlined(target string, name point.Name, fetch bool) point.Copies {
	if hasGlob(target) {
		return point.Copies{}
	}
	data, err := f.of(target)
	if err != nil {
		return point.Copies{}
	}
	return data.Inlined(name, fetch)
}

// lines are where the code of a source line of a target's file begins.
func (f *files) lines(target, file string, line int) ([]uint64, error) {
	data, err := f.of(target)
	if err != nil {
		return nil, err
	}
	return data.Lines(file, line)
}

// imported are the scripts that a path names, from the folder of the script that imports it on: one, or all of a folder.
func imported(from, path string) ([]imports.Script, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(from), path)
	}
	info, err := os.Stat(path)
	names := []string{path}
	switch {
	case err == nil && info.IsDir():
		names, _ = filepath.Glob(filepath.Join(path, "*.bt"))
	case err != nil && filepath.Ext(path) == "":
		if _, other := os.Stat(path + ".bt"); other == nil {
			names, err = []string{path + ".bt"}, nil
		}
	}
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("there is no script %s", path)
	}
	var all []imports.Script
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, imports.Script{Name: name, Text: string(text)})
	}
	return all, nil
}

// kernelSymbol finds a symbol of the kernel below.
func kernelSymbol(name string) (uint64, error) {
	text, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return 0, fmt.Errorf(": %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) >= 3 && fields[2] == name {
			addr, err := strconv.ParseUint(fields[0], 16, 64)
			if err != nil || addr == 0 {
				return 0, errors.New(": the kernel hides its addresses from this user (kernel.kptr_restrict)")
			}
			return addr, nil
		}
	}
	return 0, errNoSymbol
}

var errNoSymbol = errors.New("")

// Type is a type of a target's file by its name; nil for none.
func (f *files) Type(target, name string) *types.Type {
	data, err := f.of(target)
	if err != nil {
		return nil
	}
	return data.Type(name)
}
