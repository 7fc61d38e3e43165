package sampler

import "bytes"

// A TextDecoder turns the tokens of one response into text as they come. Add returns the text that id adds; it
// may hold bytes back until a character is complete, and then return them with a later token. EOS tokens are
// not added. Pending returns the complete characters among these bytes, which later bytes may still change.
type TextDecoder interface {
	Add(id int32) string
	Pending() string
}

// stops are the strings that end a response.
type stops struct {
	strings [][]byte
	longest int
}

func newStops(list []string) stops {
	s := stops{strings: make([][]byte, len(list))}
	for i, stop := range list {
		s.strings[i] = []byte(stop)
		s.longest = max(s.longest, len(stop))
	}
	return s
}

// find appends text to tail, the end of the text so far, and returns the index of the
// stop string that now occurs in it or together with the pending bytes, or -1, and the
// tail to give next time. The stop that begins first wins, then the one listed first.
func (s stops) find(tail []byte, text, pending string) (int, []byte) {
	if text == "" && pending == "" {
		return -1, tail
	}
	tail = append(append(tail, text...), pending...)
	found, at := -1, len(tail) // at: where the found one begins
	for i, stop := range s.strings {
		if j := bytes.Index(tail, stop); j >= 0 && j < at {
			found, at = i, j
		}
	}
	tail = tail[:len(tail)-len(pending)] // these bytes come again with a later text
	// A stop string that is not complete yet has at most longest-1 bytes here.
	if surplus := len(tail) - (s.longest - 1); surplus > 0 {
		tail = tail[:copy(tail, tail[surplus:])]
	}
	return found, tail
}
