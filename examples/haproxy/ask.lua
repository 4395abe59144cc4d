-- Checks a request with Postern. The verdict and the caller's identity are stored in variables of the
-- transaction. Without a verdict no request passes.

local POSTERN = "http://127.0.0.1:9002/"
-- Fields that belong to the check itself. Postern sees all other fields of the client, and refuses
-- those that a service could mistake for one of ours.
local NOT_PASSED = {
    ["host"] = true, ["connection"] = true, ["keep-alive"] = true, ["te"] = true, ["upgrade"] = true,
    ["transfer-encoding"] = true, ["content-length"] = true, ["expect"] = true, ["x-forwarded-method"] = true,
    ["x-forwarded-proto"] = true, ["x-forwarded-host"] = true, ["x-forwarded-uri"] = true, ["x-forwarded-for"] = true,
}
local TOLD = {
    user = "x-forwarded-user",
    email = "x-forwarded-email",
    groups = "x-forwarded-groups",
    name = "x-forwarded-preferred-username",
}

-- Returns the values of a field in their order. HAProxy counts from 0.
local function values(field)
    local list = {}
    local at = 0
    while field and field[at] do
        list[#list + 1] = field[at]
        at = at + 1
    end
    return list
end

core.register_action("ask", { "http-req" }, function(txn)
    local fields = txn.http:req_get_headers()
    local headers = {
        ["x-forwarded-method"] = { txn.sf:method() },
        ["x-forwarded-proto"] = { txn.sf:ssl_fc() == 1 and "https" or "http" },
        -- Postern refuses a request with two hosts.
        ["x-forwarded-host"] = values(fields["host"]),
        ["x-forwarded-uri"] = { txn.sf:pathq() },
        ["x-forwarded-for"] = { txn.sf:src() },
    }
    for name, field in pairs(fields) do
        if not NOT_PASSED[name] then
            headers[name] = values(field)
        end
    end
    -- HAProxy repeats the request if there is no answer in time, up to four times in all.
    local answer = core.httpclient():get({ url = POSTERN, headers = headers, timeout = 3500 })
    if not answer or not answer.status or answer.status == 0 then
        return
    end
    txn:set_var("txn.verdict", tostring(answer.status))
    local told = answer.headers or {}
    if told["www-authenticate"] then
        txn:set_var("txn.challenge", told["www-authenticate"][0])
    end
    for variable, name in pairs(TOLD) do
        local value = told[name] and told[name][0]
        if value and value ~= "" then
            txn:set_var("txn." .. variable, value)
        end
    end
end)
