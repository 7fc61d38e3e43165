package files

import (
	"bytes"
	"slices"
	"strings"
)

// foreign says what files are that often stand in the place of others, and what to do, by
// how they begin, in lower case.
var foreign = []struct {
	what   string
	begins []string
}{
	{"a pointer (of Git LFS, Xet or git-annex), which only names the file: fetch the file itself, as with git lfs pull", []string{"version https://git-lfs", "# xet version", "/annex/objects/"}},
	{"a link of Hugging Face's cache that was copied as a text: copy the file itself (cp -L)", []string{"../../blobs/"}},
	{"a web page (HTML or XML), not the file: download the file itself, from a hub at /resolve/ in place of /blob/, with a token if it is gated", []string{"<!doctype", "<html", "<head", "<?xml", "<error>"}},
	{"the text with which a server refused the file: check its name and the token, and download it again", []string{"entry not found", "repository not found", "not found", "404: not found", "invalid username or password", "invalid credentials", "access to model", "access to dataset", `{"error":`}},
	{"a zip archive, as checkpoints of PyTorch and workbooks of Excel are, too: unpack or convert it (a model by transformers' save_pretrained)", []string{"pk\x03\x04"}},
	{"a file of Python (a pickle, HDF5 or NumPy): convert it (a model by transformers' save_pretrained)", []string{"\x80\x02\x8a", "\x80\x02}", "\x80\x03}", "\x80\x04\x95", "\x80\x05\x95", "\x89hdf", "\x93numpy"}},
	{"a GGUF file: name the Hugging Face folder that it was made from, or make one with transformers: from_pretrained(DIR, gguf_file=FILE), then save_pretrained", []string{"gguf"}},
	{"a packed file: unpack it", []string{"\x1f\x8b", "\x28\xb5\x2f\xfd", "bzh", "\xfd7zxz", "7z\xbc\xaf", "rar!", "\x04\x22\x4d\x18"}},
	{"text in UTF-16: save it in UTF-8", []string{"\xff\xfe", "\xfe\xff"}},
	{"nothing but zeros at its beginning: a download or a disk failed; fetch the file again", []string{strings.Repeat("\x00", 16)}},
}

// Foreign says what a file is that begins with head, where it is of a kind that often
// stands in another's place, and what to do; "" for other files. 512 bytes are enough.
func Foreign(head []byte) string {
	head = head[:min(len(head), 512)]
	if len(head) > 262 && string(head[257:262]) == "ustar" {
		return "a tar archive: unpack it"
	}
	lower := bytes.Clone(bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n"))
	for i, c := range lower {
		if 'A' <= c && c <= 'Z' { // only ASCII: other bytes need not be text
			lower[i] += 'a' - 'A'
		}
	}
	for _, f := range foreign {
		if slices.ContainsFunc(f.begins, func(begin string) bool { return strings.HasPrefix(string(lower), begin) }) {
			return f.what
		}
	}
	return ""
}
