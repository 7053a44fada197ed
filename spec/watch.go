package spec

import (
	"strconv"
	"strings"
)

// Definitions of watchpoints (the kernel's Documentation/trace/wprobetrace.rst) have data for a
// place. In the kernel the registers there have no owner; a thread of a process that has accessed
// data has its own, so here they can be fetched.

// The kernel's defaults.
const (
	watchAccess = "rw"
	watchLength = 4
)

// watchPlace = ["r" | "w" | "rw"] "@" (ADDR | [MODULE ":"] SYMBOL ["@" VERSION])
// [("+" | "-") OFFS] [":" LENGTH].
func (p *parser) watchPlace(w word) error {
	pl := &p.s.Place
	access, text, found := strings.Cut(w.text, "@")
	at := w.at + len(access) + 1
	if !found {
		return p.fail(w.at, BadAccessFmt)
	}
	p.src.data = at
	switch access {
	case "":
		access = watchAccess
	case "r", "w", "rw":
	default:
		return p.fail(w.at, BadAccessType)
	}
	length := uint64(watchLength)
	if i := offsetColon(text); i > strings.LastIndexByte(text, '"') {
		var ok bool
		length, ok = parseUint(text[i+1:], 32)
		if !ok || length != 1 && length != 2 && length != 4 && length != 8 {
			return p.fail(at+i+1, BadAccessLen)
		}
		text = text[:i]
	}
	text, offset, err := p.dataOffset(text, at)
	if err != nil {
		return err
	}
	if p.processPlace(word{text, at}) != nil || pl.HasFileOff || pl.PctReturn || pl.Offset != 0 || pl.IsGlob() {
		return p.fail(at, BadAccessAddr)
	}
	pl.Access, pl.Length = access, int(length)
	if pl.HasAddr {
		pl.Addr += offset
	} else {
		pl.Offset = offset
	}
	return nil
}

// dataOffset cuts the offset off the data's name. A negative one wraps.
func (p *parser) dataOffset(text string, at int) (rest string, offset uint64, err error) {
	quoted := strings.LastIndexByte(text, '"') + 1
	i := quoted + strings.LastIndexAny(text[quoted:], "+-")
	if i < quoted {
		return text, 0, nil
	}
	n, ok := parseUint(text[i+1:], 32)
	switch {
	case ok && text[i] == '-':
		return text[:i], -n, nil
	case ok:
		return text[:i], n, nil
	case text[i] == '+':
		return "", 0, p.fail(at+i, BadAccessAddr)
	}
	return text, 0, nil // a hyphen in a name
}

// isWatch tells of a place whether it is data: no function has such a name.
func isWatch(place string) bool {
	access, _, found := strings.Cut(place, "@")
	return found && (access == "" || access == "r" || access == "w" || access == "rw")
}

// watching puts the kind of access around an address, if it is data.
func (pl *Place) watching(address string) string {
	if pl.Access == "" {
		return address
	}
	return pl.Access + "@" + address + ":" + strconv.Itoa(pl.Length)
}
