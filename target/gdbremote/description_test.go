package gdbremote

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"kprobe/arch"
)

func describe(docs map[string]string) (*description, error) {
	return parseDescription(func(name string) (string, error) {
		if text, ok := docs[name]; ok {
			return text, nil
		}
		return "", errors.New("there is no " + name)
	})
}

// The forms that stubs use: includes, registers in comments, numbers that are
// given, features within the target.
func TestDescription(t *testing.T) {
	d, err := describe(map[string]string{
		"target.xml": `<?xml version="1.0"?><!DOCTYPE target SYSTEM "gdb-target.dtd">
			<target><architecture> i386:x86-64
			</architecture><xi:include href="core.xml"/><xi:include href="system.xml"/></target>`,
		"core.xml": `<?xml version="1.0"?><feature name="core">
			<flags id="f" size="4"><field name="CF" start="0" end="0"/></flags>
			<reg name="rax" bitsize="64" type="int64"/>
			<!-- <reg name="rbx" bitsize="64" type="int64"/> -->
			<reg name="eflags" bitsize="32" type="f"/></feature>`,
		"system.xml": `<feature name="system"><reg name="cr3" bitsize="64" regnum="60"/><reg name="st0" bitsize="80"/></feature>`,
	})
	if err != nil {
		t.Fatal(err)
	}
	if d.machine != "i386:x86-64" {
		t.Errorf("machine %q", d.machine)
	}
	want := "[{rax 0 0 8} {eflags 1 8 4} {cr3 60 12 8} {st0 61 20 10}]"
	if got := fmt.Sprint(d.registers); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if d.arch() != arch.AMD64 {
		t.Error("it is not known for an x86-64")
	}
}

func TestDescriptionIsRefused(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"itself", `<target><xi:include href="target.xml"/></target>`, "too deeply"},
		{"not there", `<target><xi:include href="x.xml"/></target>`, "there is no x.xml"},
		{"no XML", `<target><reg`, "XML syntax error"},
		{"bits", `<target><reg name="a" bitsize="7"/></target>`, "register a of 7 bits"},
		{"wide", `<target><reg name="a" bitsize="8000000"/></target>`, "of 8000000 bits"},
		{"order", `<target><reg name="a" bitsize="8" regnum="3"/><reg name="b" bitsize="8" regnum="3"/></target>`, "b is out of order"},
		{"number", `<target><reg name="a" bitsize="8" regnum="-3"/></target>`, "register a"},
		{"many", `<target>` + strings.Repeat(`<reg name="a" bitsize="8"/>`, maxRegisters+1) + `</target>`, "register a of 8 bits"},
	} {
		_, err := describe(map[string]string{"target.xml": tt.text})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func FuzzDescription(f *testing.F) {
	f.Add(`<target><architecture>i386</architecture><feature><reg name="a" bitsize="64" regnum="7"/></feature></target>`, `<feature><reg name="b" bitsize="8"/></feature>`)
	f.Add(`<target><xi:include href="a"/></target>`, `<x><xi:include href="target.xml"/></x>`)
	f.Fuzz(func(t *testing.T, text, other string) {
		d, err := parseDescription(func(name string) (string, error) {
			if name == "target.xml" {
				return text, nil
			}
			return other, nil
		})
		if err != nil {
			return
		}
		g := make([]byte, min(d.size(), 1<<16))
		for _, r := range d.registers {
			if _, ok := d.get(arch.AMD64, g, &r); ok {
				d.put(arch.AMD64, g, &r, 1)
				if v, _ := d.get(arch.AMD64, g, &r); v != 1 {
					t.Errorf("register %v: 1 became %d", r, v)
				}
			}
		}
	})
}

// Every signal of Linux has one number of GDB's, and comes back.
func TestSignals(t *testing.T) {
	seen := make(map[int]int)
	for n := 1; n <= 64; n++ {
		g := gdbSignal(n)
		if n == 16 { // SIGSTKFLT: GDB has none
			continue
		}
		if other, twice := seen[g]; twice || g == gdbUnknown {
			t.Errorf("signal %d is GDB's %d, as %d is", n, g, other)
		}
		seen[g] = n
		if back := linuxSignal(g); back != n {
			t.Errorf("signal %d is GDB's %d, which is %d", n, g, back)
		}
	}
	if linuxSignal(gdbUnknown) != 0 || linuxSignal(0) != 0 {
		t.Error("a signal that Linux does not have was given a number")
	}
}
