package files_test

import (
	"path/filepath"
	"strings"
	"testing"

	"onering/internal/files"
)

// TestForeign: files that often stand in another's place are named, with the remedy, and a
// reader of whole files refuses them; what models and data begin with is not.
func TestForeign(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n": "git lfs pull",
		"../../blobs/4d7a21d9": "cp -L",
		"\n<!DOCTYPE HTML PUBLIC \"-//IETF//DTD HTML 2.0//EN\">": "/resolve/",
		"\ufeff<Html><body>": "/resolve/",
		"<?xml version=\"1.0\"?><Error><Code>AccessDenied": "/resolve/",
		"Entry not found":                                      "the token",
		`{"error":"Invalid credentials"}`:                      "the token",
		"PK\x03\x04\x00\x00":                                   "save_pretrained",
		"\x80\x02\x8a\nl\xfc":                                  "save_pretrained",
		"model/" + strings.Repeat("\x00", 251) + "ustar\x0000": "unpack it",
		"\x1f\x8b\x08\x00":                                     "unpack it",
		"\x28\xb5\x2f\xfd\x04":                                 "unpack it",
		"GGUF\x03\x00":                                         "was made from",
		"\xff\xfe{\x00":                                        "UTF-8",
		strings.Repeat("\x00", 4096):                           "fetch the file again",

		"": "", "{}": "", "\ufeff[1]": "", "prompt\tanswer\n": "", "#version: 0.2\n": "", "{% if tools %}<tools>": "", "PKU is a file": "", `{"errors": 1}`: "",
		"\x80\x02\x00\x00\x00\x00\x00\x00{\"": "", // a header of 640 bytes
		"\x82\xfe{":                           "", "version = 1": "",
	} {
		got := files.Foreign([]byte(text))
		if !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
		path := write(t, filepath.Join(dir, "config.json"), text)
		if _, err := files.Read(path, 1<<20); (err == nil) != (want == "") || err != nil && err.Error() != path+" is "+got {
			t.Errorf("%.40q: error %v", text, err)
		}
	}
}
