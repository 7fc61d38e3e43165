package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// settings are what the environment variables say.
type settings struct {
	home     string   // HF_HOME
	cache    string   // the folder "hub"
	endpoint *url.URL // without a slash at the end
	token    string   // may be empty
	source   string   // the variable or file of the token, for messages
	offline  bool
}

const defaultEndpoint = "https://huggingface.co"

// readSettings reads the variables that the Python client reads, with its defaults.
func readSettings(o Options) (settings, error) {
	var s settings
	env := func(names ...string) string {
		for _, n := range names {
			if v := o.Getenv(n); v != "" {
				return v
			}
		}
		return ""
	}
	home := func() (string, error) {
		if h := env("HOME", "USERPROFILE"); h != "" {
			return h, nil
		}
		return os.UserHomeDir()
	}
	expand := func(path string) (string, error) {
		path = os.Expand(path, o.Getenv)
		if path == "~" || strings.HasPrefix(path, "~/") {
			h, err := home()
			if err != nil {
				return "", fmt.Errorf("hub: %w", err)
			}
			return filepath.Join(h, path[1:]), nil
		}
		return filepath.Clean(path), nil
	}
	base, err := expand(func() string {
		if h := env("HF_HOME"); h != "" {
			return h
		}
		if x := env("XDG_CACHE_HOME"); x != "" {
			return filepath.Join(x, "huggingface")
		}
		return "~/.cache/huggingface"
	}())
	if err != nil {
		return s, err
	}
	s.home, s.cache = base, filepath.Join(base, "hub")
	if c := env("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"); c != "" {
		if s.cache, err = expand(c); err != nil {
			return s, err
		}
	}
	s.offline = o.Offline || isTrue(env("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))

	endpoint := env("HF_ENDPOINT")
	if endpoint == "" {
		endpoint = defaultEndpoint
	}
	s.endpoint, err = url.Parse(strings.TrimRight(endpoint, "/"))
	if err != nil || s.endpoint.Host == "" || s.endpoint.Scheme != "https" && s.endpoint.Scheme != "http" || s.endpoint.User != nil {
		// The value may hold a password, so the message does not repeat it.
		return s, errors.New("hub: HF_ENDPOINT must be an address such as https://huggingface.co, without a user name")
	}
	err = s.readToken(base, env, expand)
	return s, err
}

// readToken finds the token: a variable, or a file below base.
func (s *settings) readToken(base string, env func(...string) string, expand func(string) (string, error)) (err error) {
	s.token, s.source = strings.TrimSpace(env("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")), "HF_TOKEN"
	if s.token == "" && !isTrue(env("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		s.source = filepath.Join(base, "token")
		if p := env("HF_TOKEN_PATH"); p != "" {
			if s.source, err = expand(p); err != nil {
				return err
			}
		}
		text, err := os.ReadFile(s.source)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("hub: the token: %w", err)
		}
		s.token = strings.TrimSpace(string(text))
	}
	if strings.ContainsFunc(s.token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("hub: the token in %s has characters that a token cannot have", s.source)
	}
	return nil
}

func isTrue(value string) bool {
	switch strings.ToUpper(value) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}
