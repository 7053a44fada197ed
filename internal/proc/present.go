package proc

import (
	"encoding/binary"
	"errors"
	"os"
)

// Present calls f with each part of a range of a process's memory that it has: whole pages, in
// order, that are there or swapped out (proc(5), pagemap). Pages that were never touched are left
// out, and not made by being looked at; with own, so are pages of files or shared ones. Errors:
// f's; the system's.
func (p Process) Present(start, end uint64, own bool, f func(from, to uint64) error) error {
	pages, err := p.Open("pagemap")
	if err != nil {
		return err
	}
	defer pages.Close()
	if err := scan(pages, start, end, own, f); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return look(pages, start, end, own, f)
}

// look reads a word of pagemap for each page, present or not: a reservation of 128 GiB takes a
// quarter of a second.
func look(pages *os.File, start, end uint64, own bool, f func(from, to uint64) error) error {
	const word, present, swapped, file = 8, 1 << 63, 1 << 62, 1 << 61
	page := uint64(os.Getpagesize())
	first := start &^ (page - 1)
	buf := make([]byte, min(32<<10, (end-first+page-1)/page)*word)
	from, some := uint64(0), false
	for at := first; at < end; {
		n := min(uint64(len(buf))/word, (end-at+page-1)/page)
		if _, err := pages.ReadAt(buf[:n*word], int64(at/page*word)); err != nil {
			return err
		}
		for i := range n {
			flags := binary.NativeEndian.Uint64(buf[i*word:])
			is := flags&(present|swapped) != 0 && !(own && flags&file != 0)
			if is && !some {
				from = max(start, at+i*page)
			} else if !is && some {
				if err := f(from, at+i*page); err != nil {
					return err
				}
			}
			some = is
		}
		at += n * page
	}
	if some {
		return f(from, end)
	}
	return nil
}
