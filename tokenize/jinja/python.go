package jinja

import "strings"

var pythonWords = strings.NewReplacer("True", "true", "False", "false", "None", "null", "nan", "NaN", "(", "[", ")", "]")

// PythonJSON rewrites what Python prints of lists, tuples and dictionaries as JSON. NumPy
// prints no commas between elements.
func PythonJSON(text string) string {
	var b strings.Builder
	ended := false // a text or bracket was closed last, so that a comma must follow
	for text != "" {
		at := strings.IndexAny(text, "'\"[]{}(),")
		if at < 0 {
			at = len(text)
		}
		if strings.TrimSpace(text[:at]) != "" {
			ended = false
		}
		b.WriteString(pythonWords.Replace(text[:at]))
		if text = text[at:]; text == "" {
			break
		}
		c := text[0]
		opens := strings.IndexByte("'\"[{(", c) >= 0
		if opens && ended {
			b.WriteByte(',')
		}
		text = text[1:]
		switch ended = !opens && c != ','; {
		case c == '\'' || c == '"':
			text = pythonString(&b, text, c)
			ended = true
		case c == ',' && strings.IndexAny(strings.TrimSpace(text), ")]}") == 0: // Python allows it there
		default:
			b.WriteString(pythonWords.Replace(string(c)))
		}
	}
	return b.String()
}

// pythonString writes a text up to its quote as JSON, and returns what follows.
func pythonString(b *strings.Builder, text string, quote byte) string {
	b.WriteByte('"')
	i := 0
	for ; i < len(text) && text[i] != quote; i++ {
		switch c := text[i]; {
		case c == '"':
			b.WriteString(`\"`)
		case c == '\\' && i+1 < len(text):
			if i++; text[i] == 'x' { // JSON has no \xE4
				b.WriteString(`\u00`)
			} else if text[i] == '\'' {
				b.WriteByte('\'')
			} else {
				b.WriteString(text[i-1 : i+1])
			}
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return text[min(i+1, len(text)):]
}
