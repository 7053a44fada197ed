package bpf

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// A map of maps has for each key the number of a map, from 1, among those that may be in it:
// Declared.Inner. A lookup is a choice of these, so the verifier sees on each path which of them
// the program goes on with. A number that the target writes there leads to one of them, or to none.
// The controller may change at any time which map is at which key.

// mayHave works out which maps may be in a map of maps: the maps that the object puts there, and
// else all of its maps that have the shape.
func (c *Collection) mayHave(outer *MapSpec) {
	d := outer.Declared
	for _, name := range d.Entries {
		d.mayHave(name)
	}
	if len(d.Entries) == 0 {
		for _, m := range c.Maps {
			if d.Template != nil && m.alike(d.Template) {
				d.mayHave(m.Name)
			}
		}
	}
	slices.Sort(d.Inner)
}

func (d *Declared) mayHave(inner string) {
	if !slices.Contains(d.Inner, inner) {
		d.Inner = append(d.Inner, inner)
	}
}

// alike tells whether a map may stand in for another, the kernel's rule.
func (s *MapSpec) alike(t *MapSpec) bool {
	return s.Type == t.Type && s.KeySize == t.KeySize && s.ValueSize == t.ValueSize && s.Flags == t.Flags && s.Declared == nil && t.Declared == nil &&
		(s.MaxEntries == t.MaxEntries || !s.array())
}

// SetInner puts a map into a map of maps that the object leaves to its loader, before the programs
// are loaded. Where there is no map of that name one is made, as the object says that such maps
// are. Errors: no such map of maps, a key that it does not have, an inner map of another shape.
func (c *Collection) SetInner(outer string, key uint32, inner string) error {
	m := c.Map(outer)
	if m == nil || !m.OfMaps() {
		return fmt.Errorf("bpf: no map of maps %q", outer)
	}
	d, made := m.Declared, c.Map(inner)
	if d.Type == arrayOfMaps && key >= d.MaxEntries {
		return fmt.Errorf("bpf: map of maps %q has %d places, none of index %d", outer, d.MaxEntries, key)
	}
	switch {
	case inner == "":
		return fmt.Errorf("bpf: map of maps %q: the map for it has no name", outer)
	case d.Template == nil || d.Template.Declared != nil:
		return fmt.Errorf("bpf: map of maps %q: maps of its kind have to be in the object", outer)
	case made == nil:
		of := *d.Template
		of.Name = inner
		c.Maps = append(c.Maps, &of)
		for _, p := range c.Programs {
			p.Maps = c.Maps
		}
	case !made.alike(d.Template):
		return fmt.Errorf("bpf: map of maps %q: map %q is not like those that the object says are in it", outer, inner)
	}
	d.Entries[key] = inner
	d.mayHave(inner)
	return c.lower()
}

// OfMaps tells whether the map has others: which, SetInner says.
func (s *MapSpec) OfMaps() bool { return s.is(arrayOfMaps, hashOfMaps) }

// OfPrograms tells whether the map has the programs that tail calls lead to: which, SetTail says.
func (s *MapSpec) OfPrograms() bool { return s.is(progArray) }

// SetInner puts another map into a map of maps, while programs look it up. It must have been in it
// when the programs were loaded, or, where the object puts none there, have the shape that the
// object gives. "" takes the map there out. Errors: ErrNotExist for no such map, or a key that the
// map of maps does not have; ErrFull, ErrBusy, ErrInvalid.
func (m *Map) SetInner(key []byte, inner string) error {
	d := m.Spec.Declared
	if !m.Spec.OfMaps() || len(key) != int(m.Spec.KeySize) {
		return m.failed("set inner map", EINVAL)
	}
	if inner == "" && m.Spec.hash() {
		return m.failed("set inner map", m.removeHash(key))
	}
	number := slices.Index(d.Inner, inner) + 1
	if elem, ok := m.find(key); number == 0 && inner != "" || m.Spec.array() && (!ok || elem >= m.elems) {
		return m.failed("set inner map", ENOENT)
	}
	return m.failed("set inner map", m.update(key, binary.LittleEndian.AppendUint32(nil, uint32(number)), UpdateAny, 0, true))
}

// Inner is the name of the map that a map of maps has under a key. Errors: ErrNotExist, ErrInvalid.
func (m *Map) Inner(key []byte) (string, error) {
	if !m.Spec.OfMaps() || len(key) != int(m.Spec.KeySize) {
		return "", m.failed("inner map", EINVAL)
	}
	if elem, ok := m.find(key); ok {
		if n := binary.LittleEndian.Uint32(m.value(elem, 0)); n > 0 && int(n) <= len(m.Spec.Declared.Inner) {
			return m.Spec.Declared.Inner[n-1], nil
		}
	}
	return "", m.failed("inner map", ENOENT)
}

// fillInner puts in the maps that are there from the beginning.
func (m *Map) fillInner() error {
	for key, inner := range m.Spec.Declared.Entries {
		k := make([]byte, max(4, m.Spec.KeySize))
		binary.LittleEndian.PutUint32(k, key)
		if err := m.SetInner(k[:m.Spec.KeySize], inner); err != nil {
			return err
		}
	}
	return nil
}

// inner tells whether a call works on a map out of a map of maps that is no LPM trie: one is looked
// up another way.
func (e *edit) inner(pc int) bool {
	at, ok := e.maker(pc, R1)
	return ok && e.p.Insns[at].IsCall(CallHelper) && e.p.Insns[at].Imm == FnMapLookupElem &&
		!slices.ContainsFunc(e.p.Maps, func(m *MapSpec) bool {
			return m.is(LPMTrie) && slices.ContainsFunc(e.p.Maps, func(of *MapSpec) bool { return of.OfMaps() && slices.Contains(of.Declared.Inner, m.Name) })
		})
}

// innerMap is map_lookup_elem(key) of a map of maps.
func innerMap(m int, d *Declared, index func(name string) int) []Insn {
	w := &coder{}
	w.put(movReg(R2, R1))
	w.pointer(R1, m)
	w.put(helping(FnMapLookupElem))
	w.when(Jeq, R0, 0, "none")
	w.put(loadOf(SizeW, R2, R0, 0))
	for k, name := range d.Inner {
		w.when(Jeq, R2, int32(k+1), "map "+name)
	}
	w.label("none")
	w.answer(0)
	for _, name := range d.Inner {
		w.label("map " + name)
		w.pointer(R0, index(name))
		w.put(Insn{Op: ClassJMP | Exit})
	}
	return w.code()
}
