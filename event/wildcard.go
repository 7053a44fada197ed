package event

// wildcard matches a whole text with a pattern: "*" any text, "?" any byte, "[a-c]" and "[!a-c]"
// one of some bytes, or none of them.
func wildcard(pattern, text string) bool {
	// On a mismatch, the last asterisk takes one byte more.
	star, at := -1, 0
	p, t := 0, 0
	for t < len(text) {
		if p < len(pattern) && pattern[p] == '*' {
			star, at = p, t
			p++
			continue
		}
		if p < len(pattern) {
			if n, ok := wildByte(pattern[p:], text[t]); ok {
				p, t = p+n, t+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		at++
		p, t = star+1, at
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// wildByte matches one byte with the beginning of a pattern, n bytes of it.
func wildByte(pattern string, c byte) (n int, ok bool) {
	if pattern[0] != '[' {
		return 1, pattern[0] == '?' || pattern[0] == c
	}
	i, not, in := 1, false, false
	if i < len(pattern) && pattern[i] == '!' {
		not = true
		i++
	}
	for first := true; i < len(pattern) && (first || pattern[i] != ']'); first = false {
		lo, hi := pattern[i], pattern[i]
		if i+2 < len(pattern) && pattern[i+1] == '-' && pattern[i+2] != ']' {
			hi = pattern[i+2]
			i += 2
		}
		in = in || lo <= c && c <= hi
		i++
	}
	if i == len(pattern) { // not closed: a plain bracket
		return 1, c == '['
	}
	return i + 1, in != not
}
