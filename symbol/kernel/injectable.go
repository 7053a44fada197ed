package kernel

import (
	"errors"
	"fmt"

	"kprobe/arch"
)

// ErrNoInjection says that the kernel does not tell which of its functions may be made to fail.
var ErrNoInjection = errors.New("the kernel keeps no list of the functions that may be made to fail (CONFIG_FUNCTION_ERROR_INJECTION is off)")

// maxInjectable bounds the walk over a list of functions; real ones have some hundred.
const maxInjectable = 1 << 14

// Injectable lists the functions that the kernel itself allows to be replaced by an error
// (ALLOW_ERROR_INJECTION), those of loaded modules too: the kernel's own list, as it is now, since
// the tables that it was made of are freed with the rest of init. Errors: ErrNoInjection.
func (k *Kernel) Injectable() ([]arch.Range, error) {
	head, ok := k.table.Addr("error_injection_list")
	if !ok {
		return nil, ErrNoInjection
	}
	var start, end int
	if err := k.types.offsets("ei_entry", map[string]*int{"start_addr": &start, "end_addr": &end}); err != nil {
		return nil, err
	}
	var err error
	for range modulesTries { // a module may come or go meanwhile
		var out []arch.Range
		v := k.view()
		ptr := k.arch.PtrSize
		v.list(head, max(start, end)+ptr, maxInjectable, func(_ arch.Addr, entry []byte) {
			out = append(out, arch.Range{Start: v.addr(entry[start:]), End: v.addr(entry[end:])})
		})
		if err = v.err; err == nil {
			return out, nil
		}
	}
	return nil, fmt.Errorf("reading the kernel's error_injection_list: %w", err)
}
