module postern.example/peer

go 1.24
