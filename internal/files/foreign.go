package files

import (
	"bytes"
	"strings"
)

// foreign says by their first bytes, in lower case, what files are that often stand in the
// place of others, and what to do.
var foreign = []struct{ begin, what string }{
	{"version https://git-lfs", "a Git LFS pointer, which only names the file: fetch the file itself with git lfs pull"},
	{"# xet version", "a Xet pointer, which only names the file: fetch the file itself with git xet"},
	{"/annex/objects/", "a git-annex pointer, which only names the file: fetch the file itself with git annex get"},
	{"../../blobs/", "a link of Hugging Face's cache that was copied as a text: copy the file itself (cp -L)"},
	{"<!doctype", webPage}, {"<html", webPage}, {"<head", webPage}, {"<?xml", webPage}, {"<error>", webPage},
	{"entry not found", refusal}, {"repository not found", refusal}, {"invalid username or password", refusal}, {"invalid credentials", refusal},
	{"access to model", refusal}, {"access to dataset", refusal}, {"404: not found", refusal}, {"not found", refusal}, {`{"error":`, refusal},
	{"pk\x03\x04", "a zip archive, as checkpoints of PyTorch and workbooks of Excel are, too: unpack or convert it (a model by transformers' save_pretrained)"},
	{"\x80\x02\x8a", pickle}, {"\x80\x02}", pickle}, {"\x80\x03}", pickle}, {"\x80\x04\x95", pickle}, {"\x80\x05\x95", pickle},
	{"gguf", "a GGUF file: fetch the Hugging Face folder that it was made from, or convert it"},
	{"\x89hdf", "an HDF5 file: convert it (a model by transformers' save_pretrained)"}, {"\x93numpy", "an array of NumPy: convert it"},
	{"%pdf-", "a PDF: convert it to text"}, {"sqlite format 3", "a database of SQLite: export its rows"},
	{"\x1f\x8b", packed}, {"\x28\xb5\x2f\xfd", packed}, {"bzh", packed}, {"\xfd7zxz", packed}, {"7z\xbc\xaf", packed}, {"rar!", packed}, {"\x04\x22\x4d\x18", packed},
	{"\xff\xfe", "text in UTF-16: save it in UTF-8"}, {"\xfe\xff", "text in UTF-16: save it in UTF-8"},
	{strings.Repeat("\x00", 16), "nothing but zeros at its beginning: a download or a disk failed; fetch the file again"},
}

const (
	webPage = "a web page (HTML or XML), not the file: download the file itself, from a hub at /resolve/ in place of /blob/, with a token if it is gated"
	refusal = "the text with which a server refused the file: check its name and the token, and download it again"
	pickle  = "a pickle of Python, as old checkpoints of PyTorch are: convert it (a model by transformers' save_pretrained)"
	packed  = "a packed file: unpack it"
)

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
		if bytes.HasPrefix(lower, []byte(f.begin)) {
			return f.what
		}
	}
	return ""
}
