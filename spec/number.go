package spec

import (
	"strconv"
	"strings"
)

// The kernel reads numbers with kstrtoul(text, 0): "0x" and hexadecimal
// digits, a leading zero and octal digits, or decimal digits; nothing before,
// between or after them but one "+" in front. strconv's base 0 takes more
// ("0b", "0o", "_"), hence the base is found here.

// parseUint reads an unsigned number of at most the given number of bits.
func parseUint(s string, bits int) (uint64, bool) {
	return parseDigits(strings.TrimPrefix(s, "+"), bits)
}

// parseInt reads a number that may be negative.
func parseInt(s string) (int64, bool) {
	if digits, ok := strings.CutPrefix(s, "-"); ok {
		u, ok := parseDigits(digits, 64)
		return -int64(u), ok && u <= 1<<63
	}
	u, ok := parseUint(s, 63)
	return int64(u), ok
}

func parseDigits(s string, bits int) (uint64, bool) {
	base := 10
	switch {
	case len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X'):
		s, base = s[2:], 16
	case len(s) > 1 && s[0] == '0':
		base = 8
	}
	if s == "" || s[0] == '+' || s[0] == '-' { // strconv would take a sign after "0x"
		return 0, false
	}
	u, err := strconv.ParseUint(s, base, bits)
	return u, err == nil
}

// cutUint splits s at the first sep and reads the number in front of it.
func cutUint(s, sep string) (n int, rest string, ok bool) {
	digits, rest, found := strings.Cut(s, sep)
	if !found || digits == "" || !isDigit(digits[0]) {
		return 0, "", false
	}
	u, ok := parseDigits(digits, 31)
	return int(u), rest, ok
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isAlpha(c byte) bool { return c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' }

func isAlnum(c byte) bool { return isAlpha(c) || isDigit(c) }

// isWord tells whether s is made of letters, digits, underscores and the bytes
// of more, with no digit in front. "" is none.
func isWord(s, more string) bool {
	for i := 0; i < len(s); i++ {
		if !isAlpha(s[i]) && (i == 0 || !isDigit(s[i])) && strings.IndexByte(more, s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

// isIdent tells whether s is a C identifier.
func isIdent(s string) bool { return isWord(s, "") }
