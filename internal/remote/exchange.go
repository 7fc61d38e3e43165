package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"onering/internal/process"
)

// A Refusal is an answer that is not a good one.
type Refusal struct {
	Err   error
	Final bool          // another attempt would not help
	After time.Duration // how long the server asks to be left alone
}

func (r *Refusal) Error() string { return r.Err.Error() }

func (r *Refusal) Unwrap() error { return r.Err }

// Exchange sends a request and returns the body of a good answer; other answers are a *Refusal. It removes the token,
// unless that is "", from every answer, since a server may repeat it.
func Exchange(client *http.Client, request *http.Request, token string) ([]byte, error) {
	response, err := client.Do(request)
	if redirect, ok := errors.AsType[RedirectError](err); ok {
		return nil, &Refusal{Err: redirect, Final: true}
	}
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // the error names the address already
		}
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, process.MaxAnswer+1))
	if token != "" {
		body = bytes.ReplaceAll(body, []byte(token), []byte("[token]"))
	}
	switch status := response.StatusCode; {
	case status/100 == 2 && err != nil:
		return nil, err
	case status/100 == 2 && len(body) > process.MaxAnswer:
		return nil, &Refusal{Err: fmt.Errorf("the answer %s is longer than %d MB", process.Excerpt(body), process.MaxAnswer>>20), Final: true}
	case status/100 == 2:
		return body, nil
	default:
		after, _ := RetryAfter(response.Header, time.Now())
		return nil, &Refusal{Err: fmt.Errorf("%d %s: %s", status, http.StatusText(status), process.Excerpt(body)), Final: !Passing(status), After: after}
	}
}

// Reach returns an error if no connection to an address is possible, which a setting names. A
// server that answers anything counts as there.
func Reach(ctx context.Context, client *http.Client, setting, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, address, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if unreached, ok := errors.AsType[*net.OpError](err); !ok || unreached.Op != "dial" {
		if err == nil {
			response.Body.Close()
		}
		return nil
	}
	return fmt.Errorf("%s: no server is at %s: start it first, or correct the address: %w", setting, address, err.(*url.Error).Err)
}

// Passing says whether the server may answer differently the next time.
func Passing(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusNetworkAuthenticationRequired:
		return false
	}
	return status >= 500
}

// RetryAfter reads the header of that name: seconds, or a date.
func RetryAfter(header http.Header, now time.Time) (wait time.Duration, stated bool) {
	text := strings.TrimSpace(header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(date.Sub(now), 0), true
	}
	return 0, false
}

// Sleep waits, or returns the error of ctx when that ends first.
func Sleep(ctx context.Context, pause time.Duration) error {
	until, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	<-until.Done()
	return ctx.Err()
}
