package source

import "debug/dwarf"

// Enumerator finds an enumeration that has a constant of a name, and the constant; nil where there is none.
func (f *File) Enumerator(name string) (*dwarf.EnumType, int64) {
	for t := range f.types().types() {
		if t.tag != dwarf.TagEnumerationType {
			continue
		}
		f.mu.Lock()
		e, ok := f.typeAt(t.off).(*dwarf.EnumType)
		f.mu.Unlock()
		if !ok {
			continue
		}
		for _, v := range e.Val {
			if v.Name == name {
				return e, v.Val
			}
		}
	}
	return nil, 0
}
