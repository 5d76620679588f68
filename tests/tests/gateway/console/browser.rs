//! A browser without a script: it follows links, sends forms, and keeps cookies.

use fleet_tests::web::{Web, WebAnswer};

/// Who looks at pages.
#[derive(Debug, Clone)]
pub(super) struct Browser {
    web: Web,
    cookie: Option<String>,
}

impl Browser {
    /// One that has no cookie yet.
    pub(super) const fn new(web: Web) -> Self {
        Self { web, cookie: None }
    }

    /// One that has signed in with this token.
    pub(super) async fn signed_in(web: Web, token: &str) -> Self {
        let mut browser = Self::new(web);
        let answer = browser.send("/console/login", &[("token", token)]).await;
        assert_eq!(answer.status, 303, "{}", answer.text());
        browser.keep(&answer);
        browser
    }

    /// Keeps the cookie that an answer sets, as browsers do.
    pub(super) fn keep(&mut self, answer: &WebAnswer) {
        let set = answer.header("Set-Cookie");
        let (pair, rest) = set.split_once(';').unwrap_or((set, ""));
        assert!(
            rest.contains("HttpOnly") && rest.contains("SameSite=Strict"),
            "{set}"
        );
        self.cookie = (!pair.ends_with('=')).then(|| pair.to_owned());
    }

    /// With another cookie.
    pub(super) fn with_cookie(&self, cookie: &str) -> Self {
        Self {
            cookie: Some(cookie.to_owned()),
            ..self.clone()
        }
    }

    pub(super) fn cookie(&self) -> &str {
        self.cookie.as_deref().unwrap_or_default()
    }

    /// A page as it comes.
    pub(super) async fn get(&self, path: &str) -> WebAnswer {
        self.ask_from("GET", path, &[], "same-origin").await
    }

    /// A page that has to be there, as text.
    pub(super) async fn page(&self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.text()
    }

    /// Sends a form of a page.
    pub(super) async fn send(&self, path: &str, fields: &[(&str, &str)]) -> WebAnswer {
        self.ask_from("POST", path, fields, "same-origin").await
    }

    /// The same as a browser sends it from this site.
    pub(super) async fn ask_from(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        site: &str,
    ) -> WebAnswer {
        let request = match method {
            "POST" => self
                .web
                .post(path, encoded(fields))
                .header("Content-Type", "application/x-www-form-urlencoded"),
            _get => self.web.get(path),
        };
        let request = request.header("Sec-Fetch-Site", site);
        let request = match &self.cookie {
            Some(cookie) => request.header("Cookie", cookie),
            None => request,
        };
        request.send().await
    }
}

fn encoded(fields: &[(&str, &str)]) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    let fields = fields.iter().map(|(name, value)| {
        let value: String = value.bytes().map(byte).collect();
        format!("{name}={value}")
    });
    fields.collect::<Vec<_>>().join("&")
}

/// The value of the hidden field with this name.
pub(super) fn hidden<'a>(page: &'a str, name: &str) -> &'a str {
    let field = format!("type=\"hidden\" name=\"{name}\" value=\"");
    let (_, behind) = page
        .split_once(&field)
        .unwrap_or_else(|| panic!("no field {name} in {page}"));
    behind.split('"').next().unwrap_or_default()
}
