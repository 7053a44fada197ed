package spec

import (
	"fmt"
	"hash/fnv"
	"path"
	"strings"
)

// Default groups (kprobetrace.txt, uprobetracer.txt).
const (
	kprobeGroup = "kprobes"
	uprobeGroup = "uprobes"
	wprobeGroup = "wprobes"
)

// Names gives the group and the event that a definition goes by, made up as the kernel does where
// none was given: p_SYMBOL_OFFSET, r_SYMBOL_OFFSET, p_0xADDR, and for a file's offset
// p_BASE_0xOFFSET, with "p" even for return probes; a watchpoint's is SYMBOL, or wprobe. A
// character that cannot stand in an identifier becomes "_".
//
// The kernel cuts longer names at 63 bytes. Names of C++ and Rust reach that soon, and two probes
// with the same name would be one event; hence a name that has to be cut ends in a hash of the
// whole.
func (s *Spec) Names() (group, event string) {
	group, event = s.Group, s.Event
	if group == "" {
		group = kprobeGroup
		switch {
		case s.Kind == Watch:
			group = wprobeGroup
		case s.Place.HasFileOff:
			group = uprobeGroup
		}
	}
	if event == "" {
		event = s.defaultEvent()
	}
	return group, event
}

func (s *Spec) defaultEvent() string {
	pl := &s.Place
	verb := "p"
	if s.Kind == Return && !pl.HasFileOff {
		verb = "r"
	}
	var name string
	switch {
	case s.Kind == Watch && pl.HasAddr:
		name = "wprobe"
	case s.Kind == Watch:
		name = pl.Symbol
	case pl.HasAddr:
		name = verb + "_" + hex(pl.Addr)
	case pl.HasFileOff:
		base := path.Base(pl.Module)
		if i := strings.IndexAny(base, ".-_"); i >= 0 {
			base = base[:i]
		}
		name = fmt.Sprintf("%s_%s_0x%x", verb, base, pl.FileOff)
	default:
		if pl.Module != "" {
			name = path.Base(pl.Module) + "_"
		}
		name += pl.Symbol
		if pl.Version != "" {
			name += "_" + pl.Version
		}
		name = fmt.Sprintf("%s_%s_%d", verb, name, pl.Offset)
	}
	return identifier(name)
}

// identifier makes a name of an event out of any text.
func identifier(text string) string {
	b := []byte(text)
	for i, c := range b {
		if !isAlnum(c) {
			b[i] = '_'
		}
	}
	if len(b) <= maxName {
		return string(b)
	}
	h := fnv.New32a()
	h.Write([]byte(text))
	tail := fmt.Sprintf("_%08x", h.Sum32())
	return string(b[:maxName-len(tail)]) + tail
}
