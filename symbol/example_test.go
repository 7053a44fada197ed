package symbol_test

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"kprobe/symbol"
)

// The modules of a process, a name in one of them, and the way back.
func ExampleSpace_Resolve() {
	text, err := os.Open("/proc/self/maps")
	if err != nil {
		panic(err)
	}
	defer text.Close()
	maps, err := symbol.ParseMaps(text)
	if err != nil {
		panic(err)
	}
	space := symbol.NewSpace(func(m symbol.Mapping) (*symbol.File, error) {
		file, err := os.Open(m.Path)
		if err != nil {
			return nil, err
		}
		return symbol.Open(file, &symbol.Options{Path: m.Path, Debug: symbol.DebugFinder("")})
	})
	space.Update(maps)

	locs, err := space.Resolve(symbol.Query{Symbol: "runtime.gopanic", Offset: 1})
	if err != nil {
		panic(err)
	}
	back, _ := space.At(locs[0].Addr)
	fmt.Println(back.Func.Name, back.Off)

	_, err = space.Resolve(symbol.Query{Symbol: "runtime.gopanik"})
	var missing *symbol.NotFoundError
	fmt.Println(errors.Is(err, syscall.ENOENT), errors.As(err, &missing), missing.Nearest()[0])
	// Output:
	// runtime.gopanic 1
	// true true runtime.gopanic
}
