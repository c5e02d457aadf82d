// Copies the lines of an NDJSON file into a table through `writer serve`, each once, however often either is killed.
// Request N holds the lines from (N-1)*10000 on: keep the name, the file and the number of lines.
//
//	TOKEN=0123456789abcdef go run producer.go http://127.0.0.1:8080/v1/tables/events till-9 july.ndjson 10000
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"
)

type answer struct {
	Committed, Next int
	Error, Hint     string
}

var client = http.Client{Timeout: 2 * time.Minute}

// ask sends a request until the answer is one that lasts; after 429, 5xx, or none at all, it is sent again.
func ask(method, url string, header map[string]string, body []byte) (status int, found answer) {
	for {
		request, err := http.NewRequest(method, url, bytes.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+os.Getenv("TOKEN"))
		for name, value := range header {
			request.Header.Set(name, value)
		}
		pause := 1
		if response, err := client.Do(request); err != nil {
			log.Print(err)
		} else {
			text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
			response.Body.Close()
			if status = response.StatusCode; err == nil && status != 429 && status < 500 {
				json.Unmarshal(text, &found) // of a proxy's answer nothing is known but its status
				return status, found
			}
			seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
			pause = min(max(pause, seconds), 60)
			log.Printf("status %d: again in %d s", status, pause)
		}
		time.Sleep(time.Duration(pause) * time.Second)
	}
}

func main() {
	table, producer := os.Args[1], os.Args[2]
	data, unread := os.ReadFile(os.Args[3])
	perRequest, wrong := strconv.Atoi(os.Args[4])
	if unread != nil || wrong != nil {
		log.Fatal(unread, wrong)
	}
	requests := slices.Collect(slices.Chunk(slices.Collect(bytes.Lines(data)), perRequest))
	_, state := ask("GET", table+"/producers/"+producer, nil, nil)
	for sequence := state.Committed + 1; sequence <= len(requests); {
		var body bytes.Buffer
		packed := gzip.NewWriter(&body)
		packed.Write(bytes.Join(requests[sequence-1], nil))
		packed.Close()
		headers := map[string]string{"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip",
			"Producer": producer, "Sequence": strconv.Itoa(sequence)}
		if status, found := ask("POST", table+"/rows", headers, body.Bytes()); status == 200 {
			sequence++ // these rows are in the table
		} else if status == 409 && found.Next > 0 {
			sequence = found.Next
		} else {
			log.Fatalf("request %d is refused with %d: %s. %s", sequence, status, found.Error, found.Hint)
		}
	}
}
