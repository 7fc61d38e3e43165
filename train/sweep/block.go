package sweep

import (
	"fmt"
	"strings"
)

// ReplaceBlock replaces what stands in a Markdown text between the lines
//
//	<!-- NAME -->
//	<!-- end -->
//
// so that a page's tables can be remade. A text without the block is an error.
func ReplaceBlock(text, name, block string) (string, error) {
	begin := "<!-- " + name + " -->\n"
	from := strings.Index(text, begin)
	if from < 0 {
		return "", fmt.Errorf("sweep: the text has no line %q", strings.TrimSpace(begin))
	}
	from += len(begin)
	length := strings.Index(text[from:], "<!-- end -->")
	if length < 0 {
		return "", fmt.Errorf("sweep: no line %q after %q", "<!-- end -->", strings.TrimSpace(begin))
	}
	return text[:from] + block + text[from+length:], nil
}
