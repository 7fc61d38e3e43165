package verifier

import "strings"

// lastBox returns the content of the last \boxed or \fbox of s. It reports
// whether there is one and whether its brace is closed.
func lastBox(s string) (content string, found, closed bool) {
	at := max(strings.LastIndex(s, `\boxed`), strings.LastIndex(s, `\fbox`))
	if at < 0 {
		return "", false, false
	}
	rest := s[at:]
	open := strings.IndexByte(rest, '{')
	if open < 0 {
		return "", true, false
	}
	depth := 0
	for i := open; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return rest[open+1 : i], true, true
			}
		}
	}
	return rest[open+1:], true, false
}
