package hub

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	network "onering/internal/remote"
)

// The reasons of failures; test for them with errors.Is.
var (
	errNotFound     = errors.New("not found")
	errUnauthorized = errors.New("not allowed")
	errGated        = errors.New("gated")
	errOffline      = errors.New("offline")
	errChecksum     = errors.New("wrong checksum")
)

// A fault says why a repository or a file of it is not available.
type fault struct {
	Repo   string // ORG/NAME
	Status int    // HTTP status; 0 if there was no answer
	Code   string // error code of the hub, such as RepoNotFound; may be empty
	Err    error  // one of the errors above, or another cause
	Detail string // what is wrong and what to do
}

func (e *fault) Error() string {
	return "hub: " + e.Repo + ": " + cmp.Or(e.Detail, e.Err.Error())
}

func (e *fault) Unwrap() error { return e.Err }

// unreachable says whether the hub gave no answer, or asked to try later.
func unreachable(err error) bool {
	e, ok := errors.AsType[*fault](err)
	return ok && (e.Status == 0 && !errors.Is(err, errChecksum) || network.Passing(e.Status))
}

// A permanent error is one that would occur again for the same request.
type permanent struct{ error }

func (e permanent) Unwrap() error { return e.error }

// isLasting reports whether the same request would meet the error again: a wrong
// redirect, a host that does not exist, a certificate that is not valid.
func isLasting(err error) bool {
	host, unknown := errors.AsType[*net.DNSError](err)
	return errors.As(err, &permanent{}) || errors.As(err, new(*tls.CertificateVerificationError)) || unknown && host.IsNotFound
}

// refusal explains an answer that is an error, by its header X-Error-Code and its
// status. what names the file or list that was requested.
func (c *client) refusal(r repo, what string, resp *http.Response) error {
	code := resp.Header.Get("X-Error-Code")
	e := &fault{Repo: r.id, Status: resp.StatusCode, Code: code, Err: errNotFound}
	page := c.addressOf(r.address()...).String()
	token := "set HF_TOKEN to a token that may " + c.permission + " it"
	if c.token != "" {
		token = "the token in " + c.tokenSource + " may not " + c.permission + " it, or is not valid"
	}
	switch {
	case code == "GatedRepo": // a verb must follow "then"
		e.Err = errGated
		e.Detail = fmt.Sprintf("this %s is gated: accept its terms at %s, then %s", r.word, page, strings.Replace(token, "the token", "note that the token", 1))
	case code == "RevisionNotFound":
		e.Detail = fmt.Sprintf("there is no revision %q: see %s/tree/main", r.revision, page)
	case code == "EntryNotFound":
		e.Detail = fmt.Sprintf("there is no file %s at revision %q", what, r.revision)
	case code == "RepoNotFound", resp.StatusCode == http.StatusUnauthorized && code == "":
		// The hub answers 401 also for repositories that do not exist, so that
		// nobody learns which private ones do.
		e.Detail = fmt.Sprintf("there is no such %s at %s, or it is private: check the name, or %s", r.word, c.endpoint.Host, token)
		if resp.StatusCode == http.StatusUnauthorized {
			e.Err = errUnauthorized
		}
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		e.Err = errUnauthorized
		e.Detail = fmt.Sprintf("%s refuses %s: %s", c.endpoint.Host, what, token)
	case resp.StatusCode == http.StatusNotFound:
		e.Detail = fmt.Sprintf("%s does not have %s of this %s: check the name and the revision %q", c.endpoint.Host, what, r.word, r.revision)
	default:
		status := fmt.Sprintf("%.100s", resp.Status)
		e.Err = errors.New(c.withoutToken(status))
		e.Detail = fmt.Sprintf("%s answers %s to the request for %s", c.endpoint.Host, status, what)
	}
	said := resp.Header.Get("X-Error-Message")
	if said == "" && c.permission == "write" {
		said = c.reasonInBody(resp)
	}
	if said = strings.Join(strings.Fields(said), " "); said != "" {
		e.Detail += fmt.Sprintf(" (it says: %.200s)", c.withoutToken(said))
	}
	e.Detail = c.withoutToken(e.Detail)
	return e
}

// reasonInBody returns the explanation in the body of a refusal: a hub answers {"error": TEXT},
// its large file storage {"message": TEXT}.
func (c *client) reasonInBody(resp *http.Response) string {
	var body struct{ Error, Message string }
	text, err := readBody(resp, 64<<10)
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil {
		return "" // the status is enough
	}
	return cmp.Or(body.Error, body.Message)
}

// withoutToken removes the token from a text, since a hub may have sent it back.
func (c *client) withoutToken(text string) string {
	if c.token == "" {
		return text
	}
	return strings.ReplaceAll(text, c.token, "(the token)")
}
